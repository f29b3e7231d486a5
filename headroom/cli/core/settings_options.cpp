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
  const char* key;  // in model/settings.h; the option has dashes for underscores
  Kind kind;
  const char* help;
  // The values it takes, if the set is fixed; the help lists them.
  const std::vector<std::string>& (*words)() = nullptr;
};

constexpr const char* kBatch = "What one step sees";
constexpr const char* kHow = "How it is computed";
constexpr const char* kLess = "What is trained, and with less";

using namespace model;  // the choices<...> of all kinds

constexpr auto kOptions = std::to_array<Option>({
    {kBatch, "task", Kind::word, "Default: what the configuration says", choices<Task>},
    {kBatch, "batch", Kind::count, "Rows of one forward pass (default 1)"},
    {kBatch, "seq", Kind::count, "Tokens of a row (default 512, or the model's most)"},
    {kBatch, "target_seq", Kind::count, "Tokens of a decoder's row (default as --seq)"},
    {kBatch, "image", Kind::count, "Pixels a side (default: what the configuration says)"},
    {kBatch, "accumulation", Kind::count, "Forward passes before the optimizer steps"},
    {kBatch, "mask", Kind::word, "The attention mask that is given", choices<Mask>},
    {kBatch, "mode", Kind::word, "generate: with a cache for --seq", choices<Mode>},
    {kBatch, "steps", Kind::count, "Steps that are tried (default 2)"},
    {kHow, "dtype", Kind::word, "Of weights, gradients, activations", choices<Dtype>},
    {kHow, "autocast", Kind::word, "Mixed precision; fp16 with loss scaling", choices<Autocast>},
    {kHow, "attention", Kind::word, "In one kernel, or step by step", choices<Attention>},
    {kHow, "optimizer", Kind::word, "", choices<Optimizer>},
    {kHow, "optimizer_impl", Kind::word, "PyTorch's three forms", choices<OptimizerForm>},
    {kHow, "optimizer_in_backward", Kind::flag, "Step as soon as a gradient is there"},
    {kHow, "rounding", Kind::word, "Into weights of less precision", choices<Rounding>},
    {kHow, "clip", Kind::number, "Longest norm of all gradients together"},
    {kHow, "zero_grad", Kind::word, "Gradients are freed (none, the default) or filled (zero)"},
    {kHow, "loss", Kind::word, "full (default), fused, chunked:N (N tokens at a time)"},
    {kHow, "checkpointing", Kind::word, "none (default), full, every:K (layers)"},
    {kHow, "checkpointing_kind", Kind::word, "PyTorch's two", choices<CheckpointingKind>},
    {kHow, "use_cache", Kind::flag, "Keep keys and values, as transformers does by default"},
    {kHow, "hold_outputs", Kind::flag, "The outputs live through the backward pass"},
    {kLess, "lora_rank", Kind::count, "Train LoRA adapters of this rank only"},
    {kLess, "lora_targets", Kind::list, "Layers that get one (default q,v)"},
    {kLess, "freeze_backbone", Kind::flag, "Train the head alone"},
    {kLess, "quantize", Kind::word, "Frozen weights in fewer bits", choices<Quantize>},
    {kLess, "world", Kind::count, "GPUs that train together"},
    {kLess, "zero", Kind::count, "ZeRO's stage, 0 to 3"},
    {kLess, "offload", Kind::list, "Of: optimizer,gradients,parameters,activations"},
    {kLess, "offload_to", Kind::word, "Where to", choices<OffloadTo>},
    {kLess, "policy", Kind::word, "Who decides the rest: a rule of thumb", choices<Policy>},
});

std::string help_of(const Option& option) {
  std::string help = option.help;
  if (option.words != nullptr) help += (help.empty() ? "" : ": ") + join(option.words(), ", ");
  return help;
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
  return model::settings_from_json(json);
}

}  // namespace headroom::cli
