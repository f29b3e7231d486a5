// The request of `headroom estimate` and `headroom fit` to headroom-engine: model, settings, cards.
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
  std::vector<std::string> gpus;  // each a value of --gpus
  std::optional<std::string> allocator;
  SettingsOptions settings;
  bool json = false;

  void add_to(CLI::App* command);
};

// The resolved request: options parsed, cards sampled, policy applied.
struct ResolvedRequest {
  std::string model;
  model::Settings settings;
  std::vector<gpu::SimulatedCard> cards;
  std::string decision;  // of the policy, in words

  explicit ResolvedRequest(const ModelRequest& request);
};

// The request to headroom-engine.
[[nodiscard]] Json to_json(const ModelRequest& request, const ResolvedRequest& resolved);

}  // namespace headroom::cli
