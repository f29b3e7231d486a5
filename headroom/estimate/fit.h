// The largest batch of a published model that fits a card with exactly these settings, or the
// longest sequence: `headroom fit`.
//
//   const FitResult fitted = fit(model::model_named("llama-3.2-1b"), settings,
//                                dryrun::card_for("RTX 4090"));
//   fitted.found.size;          // 6: a step of 6 rows fits, one of 7 does not; both were dry-run
//   fitted.found.recommended;   // 5: 10 % less
//
// largest.h describes the search and the meaning of its result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/answer/fit.h"
#include "headroom/estimate/largest.h"
#include "headroom/gpu/simulated.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"
#include "headroom/sim/card.h"

namespace headroom::estimate {

using answer::Over;

struct FitOptions {
  Over over = Over::batch;  // seq: with the batch of the settings
  std::int64_t at_least = 1;
  // std::nullopt: limited by the card and, for a sequence, by the model's positions.
  std::optional<std::int64_t> at_most = {};
  Margin margin = {};
  sim::Rules rules = sim::Rules::cuda;
  std::optional<allocator::Settings> allocator = {};  // std::nullopt: taken from the environment
};

struct FitResult {
  std::string model;
  model::Settings settings;  // with task and sizes filled in
  Over over = Over::batch;
  gpu::SimulatedCard card;
  Largest found;

  // The process's CUDA context, on top of the memory that a probe reserves.
  [[nodiscard]] Bytes context() const { return card.total - card.reserved - room_of(card); }
};

// The settings with this batch, or this length.
[[nodiscard]] model::Settings with(const model::Settings& settings, Over over, std::int64_t size);

// Throws UsageError for settings that cannot run and for a sequence search on a model without
// sequences; also the exceptions of find_largest. In a process that uses GPUs it runs in a child
// (sim/child.h).
[[nodiscard]] FitResult fit(const model::NamedModel& model, const model::Settings& settings,
                            const gpu::SimulatedCard& card, const FitOptions& options = {});

// For several cards: the one with the least memory decides, and the result names it.
[[nodiscard]] FitResult fit(const model::NamedModel& model, const model::Settings& settings,
                            const std::vector<gpu::SimulatedCard>& cards,
                            const FitOptions& options = {});

// The answer of `headroom fit`, without notes and advice.
[[nodiscard]] answer::Fit answer_of(const FitResult& result);

}  // namespace headroom::estimate
