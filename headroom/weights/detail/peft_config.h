// peft's adapter_config.json of a LoRA adapter.
//
//   const PeftConfig config = read_peft_config("adapter/adapter_config.json");
//   for (const nn::LoraLayer& layer : layers_of(config, nn::lora_layers(model), linear)) ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "headroom/weights/adapter_files.h"

namespace headroom::weights::detail {

// Names of layers: a regular expression for the whole name, or names and their last parts.
struct PeftNames {
  bool is_pattern = false;
  std::regex pattern;
  std::vector<std::string> names;

  [[nodiscard]] bool match(const std::string& layer) const;
};

// Values for the layers whose last parts match a regular expression. The first one counts.
using PeftValues = std::vector<std::pair<std::regex, double>>;

struct PeftConfig {
  std::string source;  // the file
  std::int64_t rank = 8;
  double alpha = 8, dropout = 0;
  bool rank_stabilised = false;
  bool all_linear = false;  // then `targets` is not used
  PeftNames targets, excluded;
  PeftValues ranks, alphas;
  std::vector<std::string> modules;  // saved as a whole

  // Whether this parameter of the model is in such a module.
  [[nodiscard]] bool saves(const std::string& parameter) const;
};

// Throws InputError naming file and key.
[[nodiscard]] PeftConfig read_peft_config(const std::filesystem::path& path);

// The layers among these of a model that get an adapter. `linear` are the layers for "all-linear".
[[nodiscard]] std::vector<nn::LoraLayer> layers_of(const PeftConfig& config,
                                                   const std::vector<std::string>& layers,
                                                   const std::vector<std::string>& linear);

// The text of the file for these adapters.
[[nodiscard]] std::string peft_config_of(const nn::Lora& lora, const AdapterInfo& info);

}  // namespace headroom::weights::detail
