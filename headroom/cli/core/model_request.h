// What `headroom estimate` and `headroom fit` ask headroom-engine about: a model, settings, cards.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/settings_options.h"

namespace headroom::cli {

struct ModelRequest {
  std::string model, gpus, rules = "cuda";
  std::optional<std::string> allocator;
  SettingsOptions settings;
  bool json = false;

  void add_to(CLI::App* command);
  [[nodiscard]] Json document() const;
};

}  // namespace headroom::cli
