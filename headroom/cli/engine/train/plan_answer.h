// How `headroom train` would run a step: the plan, whether it fits, and its time.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/config/training.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/parallel/layout.h"
#include "headroom/train/step.h"

namespace headroom::cli {

struct PlanAnswer {
  std::int64_t rows = 0;
  parallel::Layout layout;
  train::Plan plan;  // if none fits, the one that needs the least memory
  // Of a card of each stage; std::nullopt if not known.
  std::optional<train::PerStage> needed, free;
  std::optional<train::PerStage> peak;  // that it reserves if there is room to spare
  bool fits = true;
  bool spills = false;  // what does not fit may wait on the host, and the plan is as wished

  // The setting that allows this plan. "" if it is allowed already.
  std::string allowed_by;
  std::string why_unpriced;

  // Of the largest.
  [[nodiscard]] std::int64_t rows_of_replica() const { return layout.rows_of_largest(rows); }
};

// Before the first step.
[[nodiscard]] PlanAnswer plan_answer(train::Step& step, std::int64_t rows);
// "21.19 GiB"; of stages "21.19 GiB, 20.01 GiB and 21.60 GiB", or "1.00 GiB a card" if equal.
[[nodiscard]] std::string to_string(const train::PerStage& all, int stages);

// "a step of 64 rows runs in 6 parts: micro-batch 11; it needs 21.19 GiB, and 24.00 GiB are usable"
[[nodiscard]] std::string to_string(const PlanAnswer& answer);

// As `--dry-run --json` prints it. `rates`: the card whose times it has.
[[nodiscard]] Json to_json(const PlanAnswer& answer, const std::vector<c10::Device>& devices,
                           double step_s, const std::string& rates);

// Seconds of a step under the plan, as `headroom plan` counts them, on cards with the rates of
// these of the catalogue, by rank.
[[nodiscard]] double step_seconds(const config::Training& training,
                                  const model::ModelConfig& config, const PlanAnswer& answer,
                                  const std::vector<const gpu::CatalogueCard*>& cards);

}  // namespace headroom::cli
