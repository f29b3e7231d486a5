#include "headroom/cli/core/settings_options.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

enum class Kind { word, count, number, list, flag };
constexpr const char* kValueNames[] = {"WORD", "N", "X", "A,B", ""};  // by Kind

struct Option {
  const char* group;
  const char* key;  // in model/run_settings.h; the option has dashes for underscores
  Kind kind;
  const char* help;
  // The values it takes, if the set is fixed; the help lists them.
  const std::vector<std::string>& (*words)() = nullptr;
};

constexpr const char* kBatch = "Input of a step";
constexpr const char* kHow = "Computation";
constexpr const char* kLess = "Techniques that save memory";

using namespace model;  // the choices<...> of all kinds

constexpr auto kOptions = std::to_array<Option>({
    {kBatch, "task", Kind::word, "Training task (default: from the configuration)", choices<Task>},
    {kBatch, "batch", Kind::count, "Rows of one forward pass (default 1)"},
    {kBatch, "seq", Kind::count,
     "Tokens in a row (default 512, or the model's maximum if that is less)"},
    {kBatch, "target_seq", Kind::count, "Tokens in a row of the decoder (default: as --seq)"},
    {kBatch, "image", Kind::count,
     "Width and height of an image, in pixels (default: from the configuration)"},
    {kBatch, "accumulation", Kind::count, "Forward and backward passes for each optimizer step"},
    {kBatch, "mask", Kind::word, "Attention mask that the model gets", choices<Mask>},
    {kBatch, "mode", Kind::word, "What to run; generate keeps a cache of --seq tokens",
     choices<Mode>},
    {kBatch, "steps", Kind::count, "Steps in the dry run (default 2)"},
    {kHow, "dtype", Kind::word, "Data type of weights, gradients and activations", choices<Dtype>},
    {kHow, "autocast", Kind::word, "Mixed precision (fp16 with loss scaling)", choices<Autocast>},
    {kHow, "attention", Kind::word, "Implementation of attention", choices<Attention>},
    {kHow, "transformers", Kind::word, "Version of transformers whose code the model follows",
     choices<Transformers>},
    {kHow, "optimizer", Kind::word, "Optimizer", choices<Optimizer>},
    {kHow, "optimizer_impl", Kind::word, "PyTorch's implementation of the optimizer",
     choices<OptimizerForm>},
    {kHow, "optimizer_in_backward", Kind::flag,
     "Update each parameter as soon as its gradient is ready"},
    {kHow, "rounding", Kind::word, "Rounding of updates to weights of lower precision",
     choices<Rounding>},
    {kHow, "clip", Kind::number, "Clip gradients by this global norm"},
    {kHow, "zero_grad", Kind::word,
     "Free the gradients (none, the default) or set them to zero (zero)"},
    {kHow, "loss", Kind::word,
     "How to compute the loss: full (default), fused, chunked:N (N tokens at a time)"},
    {kHow, "checkpointing", Kind::word,
     "Activation checkpointing: none (default), full, every:K (layers)"},
    {kHow, "checkpointing_kind", Kind::word, "PyTorch's implementation of checkpointing",
     choices<CheckpointingKind>},
    {kHow, "use_cache", Kind::flag,
     "Keep the keys and values, as transformers does unless told not to"},
    {kHow, "hold_outputs", Kind::flag, "Keep the outputs through the backward pass"},
    {kLess, "lora_rank", Kind::count, "Train only LoRA adapters of this rank"},
    {kLess, "lora_targets", Kind::list, "Layers that get an adapter (default q,v)"},
    {kLess, "freeze_backbone", Kind::flag, "Train only the head"},
    {kLess, "quantize", Kind::word, "Store frozen weights in fewer bits", choices<Quantize>},
    {kLess, "world", Kind::count, "Number of GPUs that train together"},
    {kLess, "zero", Kind::count, "ZeRO stage, 0 to 3"},
    {kLess, "offload", Kind::list, "Offload some of: optimizer,gradients,parameters,activations"},
    {kLess, "offload_to", Kind::word, "Where offloaded tensors go", choices<OffloadTo>},
    {kLess, "policy", Kind::word,
     "Policy that chooses the settings not given (docs/guides/will-it-fit.md)", choices<Policy>},
});

std::string help_of(const Option& option) {
  if (option.words == nullptr) return option.help;
  const Json usual = to_json(Settings{}).value(option.key, Json());
  return std::string(option.help) + ": " + join(option.words(), ", ") +
         (usual.is_string() ? " (default " + usual.get<std::string>() + ")" : "");
}

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

Json value(const Option& option, const std::string& text) {
  const auto refuse = [&](const char* expected) {
    const std::string name = option_name(option.key);
    throw UsageError(expectation(name, std::string(expected) + " for " + name, text));
  };
  if (option.kind == Kind::word) return text;
  if (option.kind == Kind::count) {
    const auto number = to_integer(text);
    if (!number) refuse("a whole number");
    return *number;
  }
  if (option.kind == Kind::number) {
    const auto number = to_number(text);
    if (!number) refuse("a number");
    return *number;
  }
  Json list = Json::array();
  for (const std::string_view part : split(text, ',')) list.push_back(std::string(trim(part)));
  return list;
}

// "`lora_rank`" as "--lora-rank".
std::string with_option_names(std::string words) {
  for (const Option& option : kOptions) {
    const std::string quoted = "`" + std::string(option.key) + "`";
    if (const std::size_t at = words.find(quoted); at != std::string::npos)
      words.replace(at, quoted.size(), option_name(option.key));
  }
  return words;
}

}  // namespace

void SettingsOptions::add_to(CLI::App* command) {
  for (const Option& option : kOptions) {
    const std::string name = option_name(option.key);
    CLI::Option* added = option.kind == Kind::flag
                             ? command->add_flag(name, flags_[option.key], option.help)
                             : command->add_option(name, texts_[option.key], help_of(option))
                                   ->type_name(kValueNames[static_cast<int>(option.kind)]);
    added->group(option.group);
  }
}

std::vector<std::pair<std::string, std::string>> SettingsOptions::words() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : kOptions)
    if (option.words != nullptr)
      all.emplace_back(option_name(option.key), join(option.words(), " "));
  return all;
}

std::vector<std::string> SettingsOptions::given() const {
  std::vector<std::string> names;
  for (const Option& option : kOptions)
    if (option.kind == Kind::flag ? flags_.at(option.key) : texts_.at(option.key).has_value())
      names.push_back(option_name(option.key));
  return names;
}

model::Settings SettingsOptions::settings() const {
  Json json = Json::object();
  for (const Option& option : kOptions) {
    if (option.kind == Kind::flag) {
      if (flags_.at(option.key)) json[option.key] = true;
    } else if (const std::optional<std::string>& text = texts_.at(option.key)) {
      json[option.key] = value(option, *text);
    }
  }
  try {
    return model::settings_from_json(json);
  } catch (const UsageError& error) {
    throw UsageError(error.complaint().where, with_option_names(error.complaint().words));
  }
}

}  // namespace headroom::cli
