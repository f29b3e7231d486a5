#include "headroom/recipe/recipe.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/text.h"
#include "headroom/config/training_keys.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/model/shapes.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/quantise.h"
#include "headroom/plan/pipeline.h"
#include "headroom/plan/technique.h"
#include "headroom/recipe/model.h"
#include "headroom/weights/adapter_files.h"
#include "headroom/weights/safetensors.h"

namespace headroom::recipe {
namespace {

optim::Schedule schedule_of(const config::Resolved& config, std::int64_t steps) {
  const std::int64_t warm = std::min(config.whole("warmup_steps"), steps - 1);
  const std::int64_t rest = std::max<std::int64_t>(1, steps - warm);
  const std::string word = config.text("scheduler");
  const optim::Schedule then = word == "linear"      ? optim::linear(rest)
                               : word == "cosine"    ? optim::cosine(rest)
                               : word == "one-cycle" ? optim::one_cycle(rest)
                                                     : optim::constant();
  return warm > 0 ? optim::warmed_up(warm, then) : then;
}

// ---- Model ----

// The techniques that a step can switch by itself: it starts with these. The model is built without
// them. Those that last are a property of the model.
std::set<std::string> rungs_of(const config::Resolved& config) {
  std::set<std::string> names;
  for (const plan::Rung& rung : plan::rungs()) {
    if (rung.lasts) continue;
    const std::size_t equals = rung.key.find('=');
    if (config.text(rung.key.substr(0, equals)) == rung.key.substr(equals + 1))
      names.insert(rung.name);
  }
  return names;
}

model::Settings without_rungs(const config::Training& training) {
  model::Settings settings = training.settings;
  for (const std::string& name : rungs_of(training.config))
    plan::rung_named(name).put(settings, false);
  return settings;
}

nn::LoraOptions adapters_of(const config::Resolved& config) {
  return {.rank = config.whole("model.lora_r"),
          .alpha = config.number("model.lora_alpha"),
          .dropout = config.number("model.lora_dropout"),
          .targets = config.words("model.lora_targets")};
}

// An adapter in files goes on where the model is LoRA, and becomes part of the weights elsewhere.
std::optional<nn::Lora> choose_what_is_trained(models::Model& model,
                                               const config::Training& training,
                                               const model::Settings& settings) {
  torch::nn::Module& module = model.module();
  const bool is_lora = training.config.text("model") == "lora";
  if (const auto adapter = config::adapter_of(training.config)) {
    const bool is_part = model.settings().part.has_value();
    nn::Lora lora = weights::load_adapter(module, *adapter, {.is_part = is_part});
    if (is_lora) return lora;
    lora.merge();
    for (auto& parameter : module.named_parameters())
      parameter->set_requires_grad(parameter.key().find("lora_") == std::string::npos);
  }
  TrainedParts parts{.input_gradients = false};
  if (is_lora) parts.lora = adapters_of(training.config);
  return recipe::choose_what_is_trained(model, settings, parts);
}

// Parameters that are not trained must have been loaded.
void check_frozen(torch::nn::Module& module, const std::vector<std::string>& lacking,
                  const std::string& weights) {
  std::vector<std::string> frozen;
  for (const auto& parameter : module.named_parameters())
    if (!parameter->requires_grad() &&
        std::find(lacking.begin(), lacking.end(), parameter.key()) != lacking.end())
      frozen.push_back(parameter.key());
  if (!frozen.empty())
    throw InputError("weights", "expected all that is not trained in " + weights + ", but " +
                                    counted(static_cast<long long>(frozen.size()), "tensor") +
                                    " are not there in the model's shape, " + frozen.front() +
                                    " for example; try the weights of this model, or model=full");
}

std::string words_of(const std::string& name, const train::RankModels& stages) {
  long long all = 0, active = 0;
  std::set<std::string> counted;  // a weight that several stages have is one
  for (const auto& stage : stages)
    for (const auto& parameter : stage->module().named_parameters()) {
      if (!counted.insert(parameter.key()).second) continue;
      all += parameter->numel();
      if (parameter->requires_grad()) active += parameter->numel();
    }
  return name + ", " + rounded(all) + " parameters" +
         (active == all ? "" : ", " + rounded(active) + " of them trained");
}

// "2 replicas in stages of 12, 12 and 8 layers"
std::string words_of(const config::Sharing& sharing, const std::vector<models::Part>& parts) {
  std::vector<std::string> layers;
  for (const models::Part& part : parts) layers.push_back(std::to_string(part.count));
  const std::string stages = parts.empty() ? "" : "in stages of " + listed(layers) + " layers";
  if (sharing.replicas == 1) return stages;
  return counted(sharing.replicas, "replica") + (stages.empty() ? "" : " " + stages);
}

at::ScalarType type_of(const model::Settings& settings) {
  return settings.dtype == model::Dtype::bfloat16 ? at::kBFloat16 : at::kFloat;
}

void seed_card(c10::Device device, std::uint64_t seed) {
  if (device.is_cpu()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_current_seed(seed);
}

// ---- Ranks ----

std::vector<models::Part> parts_of(const config::Training& training) {
  const std::int64_t layers = model::layer_count(training.model.config);
  const config::Sharing& sharing = training.sharing;
  return sharing.split.empty() ? train::even_parts(layers, sharing.stages)
                               : train::parts_of(sharing.split, layers);
}

// What was read of a model's files for one of its parts, and for the parts before.
weights::Loaded together(const weights::Loaded& before, const weights::Loaded& now) {
  weights::Loaded all = before;
  all.tensors += now.tensors;
  all.bytes += now.bytes;
  all.packed += now.packed;
  all.quantised += now.quantised;
  all.dequantised += now.dequantised;
  all.missing.insert(all.missing.end(), now.missing.begin(), now.missing.end());
  all.other_shapes.insert(all.other_shapes.end(), now.other_shapes.begin(), now.other_shapes.end());
  // What no part uses.
  std::erase_if(all.unexpected, [&](const std::string& name) {
    return std::find(now.unexpected.begin(), now.unexpected.end(), name) == now.unexpected.end();
  });
  return all;
}

// Makes the ranks of a model, one after another: neither the host nor a card has more of it than a
// card is to keep.
class Builder {
 public:
  Builder(const config::Training& training, const ModelOptions& options)
      : training_(training),
        network_(training.model_for(options.outputs)),
        settings_(without_rungs(training)),
        weights_(options.reads_weights ? config::weights_of(training.config) : std::nullopt) {
    if (!options.quantised.empty()) plan::rung_named(options.quantised).put(settings_, true);
  }

  // With weights, but for adapters.
  void add_model(Model& made, c10::Device device, const std::optional<models::Part>& part,
                 bool is_checkpointed) {
    model::Settings settings = settings_;
    if (is_checkpointed) settings.checkpoint_every = 1;
    made.ranks.push_back(libtorch::on(device, type_of(settings),
                                      [&] { return build_model(network_, settings, part); }));
    lacking_.emplace_back();
    if (device.is_meta()) return;
    if (!weights_) return models::initialise(*made.ranks.back());
    const weights::Loaded now =
        weights::load(*made.ranks.back(), *weights_, {.skip_other_shapes = true});
    loaded_ = loaded_ ? together(*loaded_, now) : now;
    lacking_.back() = now.missing;
    for (const weights::OtherShape& other : now.other_shapes) lacking_.back().push_back(other.name);
  }

  void add_adapters(Model& made, std::size_t rank) const {
    models::Model& model = *made.ranks[rank];
    made.adapters.push_back(choose_what_is_trained(model, training_, settings_));
    if (weights_) check_frozen(model.module(), lacking_[rank], *weights_);
    model.train();
  }

  [[nodiscard]] std::unique_ptr<optim::Optimizer> optimizer(
      const train::Tensors& parameters) const {
    const config::Resolved& config = training_.config;
    if (parameters.empty()) return optim::make_idle();
    return optim::make_optimizer(settings_.optimizer, settings_.form, parameters,
                                 {.learning = config.number("lr"),
                                  .weight_decay = config.number("weight_decay"),
                                  .rounding = settings_.rounding,
                                  .seed = static_cast<std::uint64_t>(config.whole("seed"))});
  }

  // What was read for all ranks so far; std::nullopt if they have random weights.
  [[nodiscard]] const std::optional<weights::Loaded>& loaded() const { return loaded_; }

 private:
  const config::Training& training_;
  const model::ModelConfig network_;
  model::Settings settings_;
  const std::optional<std::string> weights_;
  std::optional<weights::Loaded> loaded_;
  std::vector<std::vector<std::string>> lacking_;  // in the files, of each rank
};

std::optional<memory::SpillOptions> spill_of(const config::Resolved& config) {
  if (config.text("spill") == "off") return {};
  memory::SpillOptions options;
  if (config.is_given("host_memory")) {
    const ShareOrBytes most = config.share_or_bytes("host_memory");
    const auto available = host_memory().available.value_or(Bytes{});
    options.host_memory =
        most.share
            ? Bytes{static_cast<std::int64_t>(*most.share * static_cast<double>(available.count))}
            : most.bytes;
  }
  return options;
}

}  // namespace

bool can_quantise(const config::Training& training, std::int64_t outputs) {
  if (!training.settings.freeze_backbone && training.settings.lora_rank == 0) return false;
  const auto model = libtorch::on(at::kMeta, type_of(training.settings), [&] {
    return build_model(training.model_for(outputs), without_rungs(training));
  });
  return !nn::quantised_layers(model->module()).empty();
}

train::RankModels Model::first_replica() const {
  return {ranks.begin(), ranks.begin() + stages};
}

Model model_of(const config::Training& training, const std::vector<c10::Device>& devices,
               const ModelOptions& options) {
  const config::Sharing& sharing = training.sharing;
  if (static_cast<int>(devices.size()) != sharing.cards())
    throw UsageError(
        expectation("recipe", counted(sharing.cards(), "device"), std::to_string(devices.size())));
  if (devices.size() > 1 && std::any_of(devices.begin(), devices.end(),
                                        [](const auto& device) { return device.is_cpu(); }))
    throw UsageError(expectation("recipe", "cards for replicas and stages", "a CPU"));
  const auto memory = [&](const char* when) {
    if (options.say) options.say(memory::log_gpu_memory_stats(when, devices));
  };
  const auto parts = sharing.stages > 1 ? parts_of(training) : std::vector<models::Part>{};
  const auto seed = static_cast<std::uint64_t>(training.config.whole("seed"));
  // All cards draw the same first values (libtorch/draws.h), and then numbers of their own.
  at::manual_seed(seed);
  for (const c10::Device device : devices) seed_card(device, seed);
  Builder builder(training, options);
  Model made{.stages = sharing.stages, .quantised = options.quantised};
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto stage = rank % static_cast<std::size_t>(sharing.stages);
    const auto part = parts.empty() ? std::nullopt : std::optional(parts[stage]);
    if (options.before_rank) options.before_rank(devices[rank]);
    builder.add_model(made, devices[rank], part,
                      sharing.checkpointed.contains(static_cast<int>(stage)));
    const bool is_last = rank + 1 == static_cast<std::size_t>(sharing.stages);  // of one replica
    if (builder.loaded() && is_last && options.say)
      options.say(weights::to_string(*builder.loaded()));
  }
  memory("model on the device");
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (options.before_rank) options.before_rank(devices[rank]);
    builder.add_adapters(made, rank);
    if (rank > 0) seed_card(devices[rank], seed + rank);
  }
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    made.optimizers.push_back(
        builder.optimizer(train::own_parameters(made.ranks, sharing.stages, rank)));
  made.words = words_of(training.model.name, made.first_replica());
  if (devices.size() > 1) made.words += ", " + words_of(sharing, parts);
  memory("optimizer made");
  return made;
}

StageModel stage_of(const config::Training& training, std::int64_t outputs,
                    const std::optional<models::Part>& part, const std::set<std::string>& copies) {
  const ModelOptions options{.outputs = outputs, .reads_weights = false};
  Builder builder(training, options);
  Model made;
  builder.add_model(made, at::kMeta, part, /*is_checkpointed=*/false);
  builder.add_adapters(made, 0);
  train::Tensors parameters;
  for (const auto& one : made.ranks.front()->module().named_parameters())
    if (one.value().requires_grad() && !copies.contains(one.key()))
      parameters.push_back(one.value());
  return {made.ranks.front(), std::move(made.adapters.front()), builder.optimizer(parameters)};
}

Bytes resident_of(models::Model& model, const optim::Optimizer& optimizer) {
  Bytes all;
  const auto bytes_of = [](const at::Tensor& tensor) {
    return Bytes{static_cast<std::int64_t>(tensor.nbytes())};
  };
  for (const auto& [name, tensor] : libtorch::tensors_of(model.module()))
    all += bytes_of(tensor) * (tensor.requires_grad() ? 2 : 1);
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
    for (const auto& [name, state] : optimizer.state(i)) all += bytes_of(state);
  return all;
}

std::int64_t steps_of(const config::Resolved& config, const data::Loader& loader) {
  const std::int64_t all = config.optional_whole("epochs").value_or(1) * loader.batches_per_epoch();
  const std::int64_t steps = config.optional_whole("steps").value_or(all);
  return config.optional_whole("epochs") ? std::min(steps, all) : steps;
}

train::StepOptions step_options_of(const config::Training& training, std::int64_t steps) {
  const config::Resolved& config = training.config;
  train::StepOptions options;
  options.max_grad_norm = config.number("max_grad_norm");
  if (config.yes("bf16")) options.autocast = at::kBFloat16;
  if (config.yes("fp16")) {
    options.autocast = at::kHalf;
    options.scaling = optim::LossScalerOptions{};
  }
  options.schedule = schedule_of(config, steps);
  options.ladder.min_micro_batch = config.whole("min_batch_size");
  if (config.is_given("margin")) {
    const ShareOrBytes margin = config.share_or_bytes("margin");
    options.ladder.room = {.least = margin.bytes, .share = margin.share.value_or(0)};
  }
  options.ladder.max_retries = static_cast<int>(config.whole("max_retries"));
  options.plan.micro_batch = training.micro_batch();
  options.plan.techniques = rungs_of(config);
  options.prices = config.yes("auto_batch_size");
  options.spill = spill_of(config);
  if (config.text("spill") == "on") options.adapts = false;
  return options;
}

train::Team team_of(const config::Training& training, const Model& model) {
  return train::team_of(model.ranks, model.optimizers, model.stages,
                        plan::pipeline_named(training.config.text("pipeline")),
                        {.quantises = training.config.text("quantize") == "auto"});
}

Recipe make(const config::Training& training, const std::vector<c10::Device>& devices) {
  const bool is_pinned = !devices.empty() && devices.front().is_cuda();
  Recipe recipe{.training = training, .data = data_of(training, is_pinned)};
  recipe.model = model_of(training, devices, {.outputs = recipe.data.outputs});
  recipe.team = team_of(training, recipe.model);
  recipe.batches = batches_of(recipe.data.train, training);
  recipe.steps = steps_of(training.config, *recipe.data.train);
  recipe.step = step_options_of(training, recipe.steps);
  return recipe;
}

Recipe make(const std::vector<std::string>& settings, const std::vector<c10::Device>& devices) {
  config::Resolved config = config::resolve(config::training_keys(), {.overrides = settings});
  config::take_model_of_adapter(config);
  config::choose_dataset(config);
  return make(config::Training(std::move(config)), devices);
}

}  // namespace headroom::recipe
