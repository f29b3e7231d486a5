// What `headroom bench run` is asked: models, samples, and the plan's question without a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/cli/core/planning/plan_options.h"

namespace headroom::cli {

struct BenchQuestion {
  std::vector<std::string> models;
  std::int64_t samples = 1000;
  PlanOptions plan;
  bool computes = false;             // steps of simulated cards are computed, on the CPU
  std::int64_t clean_every = 0;      // steps
  std::optional<std::string> trace;  // a folder
  std::vector<std::string> inject;
  std::filesystem::path out = "headroom-bench";

  // Of a model: with the settings that a benchmark has where none are given.
  [[nodiscard]] PlanQuestion of(const std::string& model) const;
};

}  // namespace headroom::cli
