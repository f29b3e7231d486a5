// The options of `headroom plan`, and of commands that plan before they train.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>

#include "headroom/cli/core/planning/plan_question.h"
#include "headroom/cli/core/settings_options.h"

namespace headroom::cli {

struct PlanOptions {
  std::string gpus, budget = "0.7", tune = "full", rates;
  std::optional<std::string> allocator, host_memory, disk;
  std::optional<std::int64_t> micro_batch;
  std::optional<int> replicas, stages;
  SettingsOptions settings;
  bool balance = false;

  void add_to(CLI::App* command);
  // Settings that a command has where the user gives none.
  struct Usual {
    std::optional<std::int64_t> seq = {};  // at most as long as the model is for
    bool bfloat16 = false;                 // weights, without autocast
  };
  // Throws UsageError and InputError for a model that does not exist, and for options that it
  // cannot have.
  [[nodiscard]] PlanQuestion question(const std::string& model, const Usual& usual) const;
  [[nodiscard]] PlanQuestion question(const std::string& model) const {
    return question(model, {});
  }
};

}  // namespace headroom::cli
