// The largest batch of a published model that a card takes with exactly these settings, or the
// longest sequence: `headroom fit`.
//
//   const FitResult fitted = fit(formula::model_named("llama-3.2-1b"), settings,
//                                dryrun::card_for("RTX 4090"));
//   fitted.found.size;          // 6: a step of 6 rows fits, one of 7 does not; both were dry-run
//   fitted.found.recommended;   // 5: 10 % less
//
// largest.h says how it is found and what it means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/json.h"
#include "headroom/estimate/largest.h"
#include "headroom/formula/model_catalogue.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/card.h"

namespace headroom::estimate {

enum class Over { batch, seq };

struct FitOptions {
  Over over = Over::batch;  // seq: of rows of the settings' batch
  std::int64_t at_least = 1;
  // Nothing: as far as the card goes, and a sequence no longer than the model's positions.
  std::optional<std::int64_t> at_most = {};
  Margin margin = {};
  sim::Rules rules = sim::Rules::cuda;
  std::optional<allocator::Settings> allocator = {};  // nothing: what the environment says
};

struct FitResult {
  std::string model;
  formula::Settings settings;  // with the task and the sizes that were meant
  Over over = Over::batch;
  gpu::SimulatedCard card;
  Largest found;
};

// Throws UsageError for settings that nothing can run, for a length of a model that has none, and
// as find_largest. In a process that has GPUs it runs in a child (sim/child.h).
[[nodiscard]] FitResult fit(const formula::NamedModel& model, const formula::Settings& settings,
                            const gpu::SimulatedCard& card, const FitOptions& options = {});

// On each of several cards: the one with the least room decides, and is the result's card.
[[nodiscard]] FitResult fit(const formula::NamedModel& model, const formula::Settings& settings,
                            const std::vector<gpu::SimulatedCard>& cards,
                            const FitOptions& options = {});

// The document of `headroom fit --json`. `max_batch`, `recommended_batch` and the probes' `batch`
// are the size that was looked for; over a length they are there as `max_seq`, `recommended_seq`
// and `seq`, too.
[[nodiscard]] Json to_json(const FitResult& result);

}  // namespace headroom::estimate
