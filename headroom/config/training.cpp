#include "headroom/config/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/model/shapes.h"
#include "headroom/model/tasks.h"
#include "headroom/plan/technique.h"

namespace headroom::config {
namespace {

namespace fs = std::filesystem;

// A GPT-2 that trains on a CPU in seconds.
Json gpt_tiny(std::int64_t vocabulary) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", 64},
          {"n_head", 4},
          {"n_layer", 2},
          {"n_positions", 256},
          {"vocab_size", vocabulary},
          {"bos_token_id", 0},
          {"eos_token_id", 0}};
}

constexpr std::int64_t kTinyVocabulary = 256;  // at least

constexpr const char* kAdapter = "adapter_config.json";

// ---- Weights ----

bool has_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") ||
         fs::exists(folder / "model.safetensors.index.json");
}

fs::path hub_cache() {
  if (const auto cache = environment("HF_HUB_CACHE")) return *cache;
  if (const auto home = environment("HF_HOME")) return fs::path(*home) / "hub";
  return fs::path(environment("HOME").value_or("/root")) / ".cache/huggingface/hub";
}

// The names of a model on the hub: "openai-community/gpt2".
std::vector<std::string> hub_names(const std::string& name) {
  const std::string known = model::model_named(name).name;
  std::vector<std::string> names;
  for (const model::CatalogueModel& one : model::catalogue_models())
    if (one.name == known)
      for (const std::string& alias : one.aliases)
        if (alias.find('/') != std::string::npos) names.push_back(alias);
  return names;
}

// The newest snapshot in the cache of the hub's own programs.
std::optional<fs::path> in_cache(const std::string& hub_name) {
  std::string folder = "models--" + hub_name;
  for (std::size_t at = folder.find('/'); at != std::string::npos; at = folder.find('/'))
    folder.replace(at, 1, "--");
  std::error_code error;
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(hub_cache() / folder / "snapshots", error)) {
    if (has_weights(entry.path()) &&
        (!newest || fs::last_write_time(entry.path(), error) > fs::last_write_time(*newest, error)))
      newest = entry.path();
  }
  return newest;
}

// Rows of tokens train a language model, whatever the config's `architectures` name.
model::Task task_on_texts(const model::ModelConfig& model) {
  for (const model::Task task : model::tasks_of(model))
    if (model::is_over_tokens(task)) return model::task_for(model, task);
  return model::task_for(model, {});
}

bool trains_on_images(const Resolved& config, const model::NamedModel& model) {
  const std::string dataset = config.text("dataset");
  if (dataset == "flowers102" || dataset == "cub200" || dataset == "images") return true;
  if (dataset == "tokens" || config.text("model") == "gpt-tiny") return false;
  return model::tasks_of(model.config).front() == model::Task::image_classification;
}

model::NamedModel model_of(const Resolved& config) {
  if (config.text("model") != "gpt-tiny") return model::model_named(config.text("model.config"));
  return {"gpt-tiny", {gpt_tiny(kTinyVocabulary), "gpt-tiny"}, ""};
}

// The values of techniques' keys that are not the usual ones.
void take_techniques(const Resolved& config, model::Settings& settings) {
  for (const plan::Technique& technique : plan::techniques())
    for (const plan::Key& key : technique.keys) {
      if (key.choices.empty()) {
        if (config.yes(key.name)) key.apply("true", settings);
      } else if (config.text(key.name) != key.choices.front()) {
        key.apply(config.text(key.name), settings);
      }
    }
}

// Throws UsageError for keys that contradict each other.
void take_numbers(const Resolved& config, model::Settings& settings) {
  settings.optimizer = model::choice<model::Optimizer>(config.text("optimizer"));
  settings.dtype = model::choice<model::Dtype>(config.text("dtype"));
  settings.rounding = model::choice<model::Rounding>(config.text("rounding"));
  const bool is_pure = settings.dtype != model::Dtype::float32;
  if (config.yes("fp16") && config.yes("bf16"))
    throw UsageError(expectation("fp16", "one of fp16 and bf16", "both", "bf16=true alone"));
  for (const std::string mixed : {"fp16", "bf16"})
    if (is_pure && config.yes(mixed))
      throw UsageError(
          expectation("dtype", "dtype=float32 beside " + mixed + "=true, which computes in 16 bits",
                      "dtype=" + config.text("dtype"), "leaving one of the two out"));
  if (settings.rounding == model::Rounding::nearest) return;
  if (!is_pure)
    throw UsageError(expectation("rounding", "nearest for weights in float32, which lose no update",
                                 "stochastic", "dtype=bfloat16"));
  if (!model::can_round(settings.optimizer))
    throw UsageError(expectation(
        "rounding", "an optimizer that rounds stochastically", config.text("optimizer"),
        "optimizer=adamw, adamw8bit, adamw4bit, sgd or sgd-momentum, or rounding=nearest"));
}

model::Settings settings_of(const Resolved& config, const model::ModelConfig& model,
                            bool on_images) {
  model::Settings settings;
  const std::string kind = config.text("model");
  settings.task = on_images ? model::Task::image_classification : task_on_texts(model);
  settings.batch = config.whole("batch_size");
  settings.accumulation = config.whole("gradient_accumulation_steps");
  settings.seq = config.optional_whole("seq");
  if (kind == "gpt-tiny" && !settings.seq) settings.seq = 64;
  settings.image = config.optional_whole("image");
  settings.attention = model::choice<model::Attention>(config.text("attention"));
  settings.mask = model::Mask::none;
  take_techniques(config, settings);
  take_numbers(config, settings);
  if (const double norm = config.number("max_grad_norm"); norm > 0) settings.clip = norm;
  if (kind == "lora") {
    settings.lora_rank = config.whole("model.lora_r");
    settings.lora_targets = config.words("model.lora_targets");
  }
  settings.freeze_backbone = kind == "linear_probe";
  return settings;
}

void check_quantize(const Resolved& config) {
  const std::string quantize = config.text("quantize"), kind = config.text("model");
  if (quantize == "none" || kind == "lora" || kind == "linear_probe") return;
  throw UsageError(expectation(
      "quantize", "model=lora or model=linear_probe, whose weights are frozen", "model=" + kind,
      "optimizer=adamw8bit dtype=bfloat16, which shrinks what a training of all weights keeps"));
}

// The numbers of a list of words. Throws UsageError for a word that is none.
std::vector<std::int64_t> numbers_of(const Resolved& config, const std::string& key,
                                     std::int64_t least, const std::string& expected) {
  std::vector<std::int64_t> numbers;
  const std::vector<std::string> words = config.words(key);
  for (const std::string& word : words) {
    const auto number = to_integer(word);
    if (!number || *number < least) throw UsageError(expectation(key, expected, join(words, ",")));
    numbers.push_back(*number);
  }
  return numbers;
}

Sharing sharing_of(const Resolved& config, const model::ModelConfig& model) {
  Sharing sharing{.replicas = static_cast<int>(config.whole("replicas"))};
  const std::int64_t stages = config.optional_whole("stages").value_or(0);  // 0: not given
  const auto refuse = [&](const std::string& key, const std::string& expected,
                          const std::string& received) {
    throw UsageError(expectation(key, expected, received));
  };
  const std::int64_t layers = model::layer_count(model);
  const std::string all = counted(layers, "layer") + " of this model";
  if (config.is_given("split"))
    sharing.split = numbers_of(config, "split", 1, "numbers of layers, such as 12,12,8");
  sharing.stages =
      static_cast<int>(sharing.split.empty() ? std::max<std::int64_t>(1, stages)
                                             : static_cast<std::int64_t>(sharing.split.size()));
  if (sharing.stages > layers)
    refuse("stages", "at most one for each of the " + all, std::to_string(sharing.stages));
  const std::int64_t sum = std::accumulate(sharing.split.begin(), sharing.split.end(), 0LL);
  if (!sharing.split.empty() && sum != layers)
    refuse("split", "numbers that add up to the " + all,
           join(config.words("split"), ",") + ", together " + std::to_string(sum));
  if (!sharing.split.empty() && stages > 0 && stages != sharing.stages)
    refuse("split", counted(stages, "number") + " for stages=" + std::to_string(stages),
           join(config.words("split"), ","));
  return sharing;
}

// Which stages are checkpointed, and on which cards they lie.
void take_places(const Resolved& config, Sharing& sharing) {
  if (config.is_given("checkpointed_stages"))
    for (const std::int64_t stage :
         numbers_of(config, "checkpointed_stages", 0, "numbers of stages, such as 0,1")) {
      if (stage >= sharing.stages)
        throw UsageError(expectation("checkpointed_stages",
                                     "numbers below the " + counted(sharing.stages, "stage"),
                                     std::to_string(stage)));
      sharing.checkpointed.insert(static_cast<int>(stage));
    }
  if (!config.is_given("cards")) return;
  for (const std::int64_t card : numbers_of(config, "cards", 0, "numbers of cards, such as 1,0"))
    sharing.on.push_back(static_cast<int>(card));
  const std::set<int> different(sharing.on.begin(), sharing.on.end());
  if (static_cast<int>(different.size()) != sharing.cards() ||
      different.size() != sharing.on.size())
    throw UsageError(expectation("cards",
                                 counted(sharing.cards(), "different number") +
                                     " for replicas=" + std::to_string(sharing.replicas) +
                                     " stages=" + std::to_string(sharing.stages),
                                 join(config.words("cards"), ",")));
}

void check_device(const Resolved& config, const Sharing& sharing) {
  if (sharing.cards() == 1 || config.text("device") == "auto") return;
  throw UsageError(expectation("device", "auto for " + counted(sharing.cards(), "card"),
                               config.text("device"), "--gpus, which names several"));
}

}  // namespace

Training::Training(Resolved resolved)
    : config(std::move(resolved)),
      model(model_of(config)),
      settings(),
      sharing(sharing_of(config, model.config)) {
  take_places(config, sharing);
  check_quantize(config);
  check_device(config, sharing);
  on_images = trains_on_images(config, model);
  settings = settings_of(config, model.config, on_images);
}

std::int64_t Training::micro_batch() const {
  const std::int64_t most = config.whole("batch_size");
  const std::int64_t rows = most * config.whole("gradient_accumulation_steps"),
                     of_replica = (rows + sharing.replicas - 1) / sharing.replicas;
  if (const auto given = config.optional_whole("micro_batch")) return std::min(*given, of_replica);
  if (sharing.stages == 1) return std::min(most, of_replica);
  const std::int64_t parts = std::int64_t{4} * sharing.stages,
                     least = config.whole("min_batch_size");
  return std::min(most, std::max(least, (of_replica + parts - 1) / parts));
}

model::ModelConfig Training::model_for(std::int64_t outputs) const {
  if (config.text("model") == "gpt-tiny")
    return {gpt_tiny(std::max(outputs, kTinyVocabulary)), "gpt-tiny"};
  return outputs > 0 && on_images ? model.config.with_labels(outputs) : model.config;
}

std::string Training::short_name() const {
  const std::string kind = config.text("model");
  fs::path name = kind == "gpt-tiny" ? kind : config.text("model.config");
  if (!name.has_filename()) name = name.parent_path();  // "models/gpt/"
  if (name.filename() == "config.json") name = name.parent_path();
  return name.filename().string();
}

std::string Training::job() const {
  const std::string kind = config.text("model");
  const std::string name = kind == "gpt-tiny" ? kind : config.text("model.config");
  const std::string what = kind == "lora"
                               ? "adapters of rank " + std::to_string(config.whole("model.lora_r"))
                           : kind == "linear_probe" ? "its head"
                                                    : "all weights";
  return fmt::format("{}, {}, on {}", name, what, config.text("dataset"));
}

std::optional<std::string> adapter_of(const Resolved& config) {
  const auto given = config.optional_text("weights");
  if (!given || !fs::exists(fs::path(*given) / kAdapter)) return {};
  return given;
}

void take_model_of_adapter(Resolved& config) {
  const auto adapter = adapter_of(config);
  if (!adapter || config.is_given("model.config")) return;
  const std::string file = (fs::path(*adapter) / kAdapter).string();
  const Json document = parse_json(read_input(file), file);
  const auto base = document.find("base_model_name_or_path");
  if (base == document.end() || !base->is_string())
    throw InputError(expectation("weights", "a text for base_model_name_or_path in " + file,
                                 base == document.end() ? "none" : to_line(*base),
                                 "model.config=..., the model below the adapter"));
  config.set("model.config", *base, kChosen);
}

std::optional<std::string> weights_of(const Resolved& config) {
  const auto given = config.optional_text("weights");
  if (given == "random" || (!given && config.text("model") == "gpt-tiny")) return {};
  if (given && !fs::exists(*given))
    throw InputError("weights", "expected a safetensors file, or a folder with some, at " + *given);
  if (given && !adapter_of(config)) return given;
  const std::string name = config.text("model.config");
  if (has_weights(name)) return name;
  if (fs::exists(name))
    throw InputError("weights",
                     fmt::format("expected model.safetensors, or its shards with an index, beside "
                                 "{}; try weights=FOLDER or weights=random",
                                 name));
  const std::vector<std::string> hub = hub_names(name);
  for (const std::string& one : hub)
    if (const auto found = in_cache(one)) return found->string();
  throw InputError("weights",
                   fmt::format("expected the weights of {} in the Hugging Face cache, {}; try "
                               "{}weights=FOLDER with safetensors files, or weights=random",
                               name, hub_cache().string(),
                               hub.empty() ? "" : fmt::format("`hf download {}`, ", hub.front())));
}

std::string base_name_of(const Resolved& config) {
  std::string name = config.text("model.config");
  const auto weights = config.optional_text("weights");
  if (weights && weights != "random" && !adapter_of(config) &&
      fs::exists(fs::path(*weights) / "config.json"))
    name = *weights;
  if (!fs::exists(name)) {
    const std::vector<std::string> hub = hub_names(name);
    return hub.empty() ? name : hub.front();
  }
  const fs::path folder = fs::is_directory(name) ? fs::path(name) : fs::path(name).parent_path();
  return fs::canonical(folder.empty() ? "." : folder).string();
}

void choose_dataset(Resolved& config) {
  if (config.text("model") == "gpt-tiny") {
    if (!config.is_given("dataset")) config.set("dataset", "synthetic", kChosen);
    const std::string dataset = config.text("dataset");
    if (dataset != "synthetic" && dataset != "tokens")
      throw UsageError(expectation("dataset", "tokens or synthetic for model=gpt-tiny", dataset));
    return;
  }
  if (config.text("dataset") != "tokens") return;
  const std::string name = config.text("model.config");
  const model::ModelConfig model = model::model_named(name).config;
  const model::Task task = model::tasks_of(model).front();
  if (task == model::Task::image_classification)
    throw UsageError(expectation("dataset", "images for " + name, "tokens", "dataset=images"));
  if (task == model::Task::seq2seq_lm)
    throw UsageError(expectation(
        "dataset",
        fmt::format("pairs of texts, which no dataset has, for {} ({}): it would learn to copy",
                    name, model.type()),
        "tokens", "model.config=gpt2, or bert-base-uncased"));
}

void choose_stages(Resolved& config) {
  const auto is_typed = [&](const char* key) { return config.origin(key) == "command line"; };
  if (is_typed("stages") && !is_typed("split")) config.set("split", {}, kChosen);
  if (is_typed("split") && !is_typed("stages")) config.set("stages", {}, kChosen);
}

std::vector<std::string> stand_in_for_files(Resolved& config) {
  std::vector<std::string> lines;
  const std::string dataset = config.text("dataset");
  if (dataset != "synthetic" && !config.is_given("data_dir") &&
      !fs::exists(config.text("data_dir"))) {
    const std::string classes = dataset == "flowers102" ? "102" : dataset == "cub200" ? "200" : "";
    lines.push_back(fmt::format("{} is not in {}: made-up data of its shape stand in for it{}",
                                dataset, config.text("data_dir"),
                                dataset == "images" && !config.is_given("num_classes")
                                    ? ", with 10 classes; try num_classes=N"
                                    : ""));
    // The usual model depends on the dataset.
    if (const auto model = config.optional_text("model.config"))
      config.set("model.config", *model, kChosen);
    config.set("dataset", "synthetic", kChosen);
    if (!classes.empty() && !config.is_given("num_classes"))
      config.set("num_classes", classes, kChosen);
  }
  if (config.is_given("weights")) return lines;
  try {
    static_cast<void>(weights_of(config));
  } catch (const InputError&) {
    lines.push_back(fmt::format("the weights of {} are not here: random ones stand in for them",
                                config.text("model.config")));
    config.set("weights", "random", kChosen);
  }
  return lines;
}

}  // namespace headroom::config
