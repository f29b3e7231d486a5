#include "headroom/cli/core/settings_options.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

enum class Kind { word, count, size, list, flag };

struct Option {
  const char* group;
  const char* key;  // of formula/settings.h; the option has dashes for underscores
  Kind kind;
  const char* help;
};

constexpr const char* kBatch = "What one step sees";
constexpr const char* kHow = "How it is computed";
constexpr const char* kLess = "What is trained, and with less";

constexpr auto kOptions = std::to_array<Option>({
    {kBatch, "task", Kind::word, "causal-lm, masked-lm, ... (default: as the configuration says)"},
    {kBatch, "batch", Kind::count, "Rows of one forward pass (default 1)"},
    {kBatch, "seq", Kind::count, "Tokens of a row (default 512, or the model's most)"},
    {kBatch, "target_seq", Kind::count, "Tokens of a decoder's row (default as --seq)"},
    {kBatch, "image", Kind::count, "Pixels a side (default: as the configuration says)"},
    {kBatch, "accumulation", Kind::count, "Forward passes before the optimizer steps"},
    {kBatch, "mask", Kind::word, "Attention mask: ones, none"},
    {kBatch, "mode", Kind::word, "train, inference, generate (with a cache for --seq)"},
    {kBatch, "steps", Kind::count, "Steps that are tried (default 2)"},
    {kHow, "dtype", Kind::word, "float32, bfloat16, float16"},
    {kHow, "autocast", Kind::word, "none, bf16, fp16 (with loss scaling)"},
    {kHow, "attention", Kind::word, "sdpa, eager"},
    {kHow, "optimizer", Kind::word,
     "adamw, adam, sgd, sgd-momentum, adafactor, adafactor-hf, adamw8bit, none"},
    {kHow, "optimizer_impl", Kind::word, "fused, foreach, loop"},
    {kHow, "optimizer_in_backward", Kind::flag, "Step as soon as a gradient is there"},
    {kHow, "rounding", Kind::word, "Into weights of less precision: nearest, stochastic"},
    {kHow, "clip", Kind::size, "Longest norm of all gradients together"},
    {kHow, "zero_grad", Kind::word, "none (gradients are freed), zero (filled with zeros)"},
    {kHow, "loss", Kind::word, "full, fused, chunked:N (N tokens at a time)"},
    {kHow, "checkpointing", Kind::word, "none, full, every:K"},
    {kHow, "checkpointing_kind", Kind::word, "nonreentrant, reentrant"},
    {kHow, "use_cache", Kind::flag, "Keep keys and values, as transformers does by default"},
    {kHow, "hold_outputs", Kind::flag, "The outputs live through the backward pass"},
    {kLess, "lora_rank", Kind::count, "Train LoRA adapters of this rank only"},
    {kLess, "lora_targets", Kind::list, "Layers that get one: q,v (default)"},
    {kLess, "freeze_backbone", Kind::flag, "Train the head alone"},
    {kLess, "quantize", Kind::word, "Frozen weights in: none, 8bit, 4bit"},
    {kLess, "world", Kind::count, "GPUs that train together"},
    {kLess, "zero", Kind::count, "ZeRO's stage: 0, 1, 2, 3"},
    {kLess, "offload", Kind::list, "optimizer,gradients,parameters,activations"},
    {kLess, "offload_to", Kind::word, "host, disk"},
    {kLess, "policy", Kind::word,
     "A rule of thumb decides: exact (none), size-table, strategy, simple, variant"},
});

std::string option_name(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

Json value(const Option& option, const std::string& text) {
  const auto refuse = [&](const char* expected) {
    throw UsageError(expectation(option_name(option.key), expected, text));
  };
  if (option.kind == Kind::word) return text;
  if (option.kind == Kind::count) {
    const auto number = to_integer(text);
    if (!number) refuse("a whole number");
    return *number;
  }
  if (option.kind == Kind::size) {
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
    CLI::Option* added =
        option.kind == Kind::flag
            ? command->add_flag(option_name(option.key), flags_[option.key], option.help)
            : command->add_option(option_name(option.key), texts_[option.key], option.help);
    added->group(option.group);
  }
}

formula::Settings SettingsOptions::settings() const {
  Json json = Json::object();
  for (const Option& option : kOptions) {
    if (option.kind == Kind::flag) {
      if (flags_.at(option.key)) json[option.key] = true;
    } else if (const std::optional<std::string>& text = texts_.at(option.key)) {
      json[option.key] = value(option, *text);
    }
  }
  return formula::settings_from_json(json);
}

}  // namespace headroom::cli
