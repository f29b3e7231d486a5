// How `headroom train` would run a step: the plan, whether it fits, and its time.
#pragma once

#include <optional>
#include <string>

#include "headroom/base/json.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/train/step.h"

namespace headroom::cli {

struct PlanAnswer {
  std::int64_t rows = 0;
  train::Plan plan;                   // if none fits, the one that needs the least memory
  std::optional<Bytes> needed, free;  // std::nullopt if not known
  bool fits = true;
  // The setting that allows this plan. "" if it is allowed already.
  std::string allowed_by;
  std::string why_unpriced;
};

// Before the first step.
[[nodiscard]] PlanAnswer plan_answer(train::Step& step, std::int64_t rows);
// "a step of 64 rows runs in 6 parts: micro-batch 11; it needs 21.19 GiB, and 24.00 GiB are usable"
[[nodiscard]] std::string to_string(const PlanAnswer& answer);

// As `--dry-run --json` prints it.
[[nodiscard]] Json to_json(const PlanAnswer& answer, double step_s);

// Seconds of a step of this many rows under this plan, by roofline: with what checkpointing
// computes again, the traffic of offload, and the weights that each part reads.
[[nodiscard]] double step_seconds(const model::ModelConfig& config, model::Settings settings,
                                  const train::Plan& plan, std::int64_t rows,
                                  const gpu::CatalogueCard* card);
// "3.8 s", "2.4 ms"
[[nodiscard]] std::string step_time_text(double seconds);

}  // namespace headroom::cli
