#include "headroom/cli/core/training_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/config/training_keys.h"
#include "headroom/machine/look.h"
#include "headroom/model/tasks.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {
namespace {

constexpr const char* kByVariant = "model_variants";
constexpr const char* kCommandLine = "command line";

// ---- First guesses ----

bool is_model(const std::string& word) {
  try {
    return static_cast<void>(model::model_named(word)), true;
  } catch (const Error&) {
    return false;
  }
}

bool is_choice_of(const char* key, const std::string& word) {
  const auto& choices = config::training_keys().key(key).choices;
  return std::find(choices.begin(), choices.end(), word) != choices.end();
}

// A word without `=`. "" if there is no guess.
std::string meant_by(const std::string& word) {
  if (word == "help") return "headroom train --help, or --help-keys";
  if (word.ends_with(".yaml") || word.ends_with(".yml")) return "--config " + word;
  for (const char* key : {"model", "dataset"})
    if (is_choice_of(key, word)) return fmt::format("{}={}", key, word);
  return is_model(word) ? "model=full model.config=" + word : "";
}

void answer_first_guess(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) {
    if (const std::string meant = meant_by(word); !meant.empty())
      throw UsageError(expectation("train", "key=value", word, meant));
    return;
  }
  const std::string key = word.substr(0, equals), value(trim(word.substr(equals + 1)));
  const bool is_of_model = key == "model" || key == "training.model" || key == "model.name";
  if (is_of_model && !is_choice_of("model", value) && is_model(value))
    throw UsageError(
        expectation("model", "one of " + join(config::training_keys().key("model").choices, ", "),
                    word, "model=full model.config=" + value));
}

// ---- Keys without effect ----

struct Unused {
  std::vector<const char*> keys;
  bool is_unused = false;
  std::string expected, received;
};

std::vector<Unused> unused_keys(const config::Training& training) {
  const config::Resolved& config = training.config;
  const std::string model = config.text("model"), dataset = config.text("dataset");
  const bool images = training.on_images, texts = !images, made_up = dataset == "synthetic";
  const bool is_masked = training.settings.task == model::Task::masked_lm;
  const std::string of_model = "model=" + model, of_dataset = "dataset=" + dataset;
  return {
      {{"num_classes", "image"}, texts, "images", "texts"},
      {{"seq"}, images, "texts", "images"},
      {{"loss"}, images && config.text("loss") != "full", "texts", "images"},
      {{"data_dir"}, made_up, "data in files", of_dataset},
      {{"skip_damaged"}, texts || made_up, "images in files", of_dataset},
      {{"train_data", "val_data", "loss_mask"}, dataset != "tokens", "dataset=tokens", of_dataset},
      {{"mask_token_id"},
       !is_masked || made_up,
       "tokens for a model that is trained with masks",
       is_masked ? of_dataset : "another model"},
      {{"model.config"}, model == "gpt-tiny", "another model", of_model},
      {{"model.lora_r", "model.lora_alpha", "model.lora_dropout", "model.lora_targets"},
       model != "lora",
       "model=lora",
       of_model},
      {{"gpu_wait_timeout_minutes", "gpu_check_interval_seconds"},
       !config.yes("wait_for_gpu"),
       "wait_for_gpu=true",
       "wait_for_gpu=false"},
      {{"allow_cpu"},
       training.sharing.cards() > 1,
       "a run on one card",
       counted(training.sharing.cards(), "card")},
      {{"pipeline", "checkpointed_stages"},
       training.sharing.stages == 1,
       "stages=2 or more",
       "stages=1"},
  };
}

}  // namespace

config::Resolved training_config(const config::Sources& sources) {
  for (const std::string& word : sources.overrides) answer_first_guess(word);
  config::Resolved config = config::resolve(config::training_keys(), sources);
  config::choose_stages(config);
  return config;
}

// The smallest card decides.
std::optional<std::string> choose_variant(config::Resolved& config, const gpu::Devices& devices) {
  const auto variants = config.model_variants("model_variants");
  if (variants.empty()) return {};
  if (config.origin("model.config") == kCommandLine)
    return fmt::format("model.config={} of the command line, not one of model_variants",
                       config.text("model.config"));
  std::optional<Bytes> total;  // the CPU counts as the smallest card
  if (devices.kind != gpu::Devices::Kind::cpu)
    total = gpu::smallest_total(machine::look_at_machine(devices.text).machine);
  std::vector<plan::Variant> sizes;
  for (const config::ModelVariant& one : variants) sizes.push_back({one.min_total, one.model});
  const auto choice = plan::variant_by_memory(sizes, total.value_or(Bytes{0}));
  if (choice.model.empty()) throw UsageError("model_variants", choice.why);
  config.set("model.config", choice.model, kByVariant);
  const config::ModelVariant* chosen = nullptr;
  for (const config::ModelVariant& one : variants)
    if (one.model == choice.model && one.min_total <= total.value_or(Bytes{0}) &&
        (chosen == nullptr || one.min_total > chosen->min_total))
      chosen = &one;
  if (chosen == nullptr || !chosen->batch_size) return choice.why;
  if (config.origin("batch_size") == kCommandLine)
    return fmt::format("{}; batch_size={} of the command line", choice.why,
                       config.whole("batch_size"));
  config.set("batch_size", std::to_string(*chosen->batch_size), kByVariant);
  return choice.why;
}

std::vector<std::string> check_use_of_keys(const config::Training& training) {
  const config::Resolved& config = training.config;
  std::vector<std::string> sentences;
  for (const Unused& rule : unused_keys(training))
    for (const char* key : rule.keys) {
      if (!rule.is_unused || !config.is_given(key)) continue;
      if (config.origin(key) == kCommandLine)
        throw UsageError(expectation("train", fmt::format("{} for {}", rule.expected, key),
                                     rule.received, fmt::format("leaving {} out", key)));
      sentences.push_back(fmt::format("{} of {} has no effect: it is for {}", key,
                                      config.origin(key), rule.expected));
    }
  if (config.whole("min_batch_size") > config.whole("batch_size"))
    throw UsageError(expectation(
        "train",
        "min_batch_size of at most batch_size, " + std::to_string(config.whole("batch_size")),
        std::to_string(config.whole("min_batch_size")), "a larger batch_size"));
  return sentences;
}

}  // namespace headroom::cli
