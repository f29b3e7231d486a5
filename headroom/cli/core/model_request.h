// What `headroom estimate` and `headroom fit` ask headroom-engine about: a model, settings, cards.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/settings_options.h"
#include "headroom/gpu/simulated.h"

namespace headroom::cli {

struct ModelRequest {
  std::string model, rules = "cuda";
  std::vector<std::string> gpus;  // each as --gpus has it
  std::optional<std::string> allocator;
  SettingsOptions settings;
  bool json = false;

  void add_to(CLI::App* command);
};

// What is meant: options read, cards looked at, a policy asked.
struct MeantRequest {
  std::string model;
  formula::Settings settings;
  std::vector<gpu::SimulatedCard> cards;
  std::string decision;  // of the policy

  explicit MeantRequest(const ModelRequest& request);
};

// For headroom-engine.
[[nodiscard]] Json to_json(const ModelRequest& request, const MeantRequest& meant);

}  // namespace headroom::cli
