// How much memory a published model needs to train, and whether it fits: by dry run.
//
//   const auto model = formula::model_named("llama-3.1-8b");
//   formula::Settings settings;
//   settings.batch = 2;
//   settings.dtype = formula::Dtype::bfloat16;
//   const Estimate estimate = estimate_memory(model, settings, dryrun::card_for("RTX 4090"));
//   estimate.fits();                              // false
//   to_string(estimate.report.peak.allocated);    // what it would need
#pragma once

#include <optional>
#include <string>

#include "headroom/allocator/settings.h"
#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/dryrun/report.h"
#include "headroom/formula/model_catalogue.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/card.h"

namespace headroom::estimate {

struct Options {
  sim::Rules rules = sim::Rules::cuda;
  std::optional<allocator::Settings> allocator = {};  // nothing: what the environment says
  bool keep_trace = false;                            // Report::trace
};

struct Estimate {
  std::string model;
  long long parameters = 0, trainable_parameters = 0;
  formula::Settings settings;  // with the task and the sizes that were meant
  gpu::SimulatedCard card;
  dryrun::Report report;

  [[nodiscard]] bool fits() const { return report.fits(); }
  // What is left of the card at the peak, the process's context included; negative: what is
  // missing.
  [[nodiscard]] Bytes spare() const;
};

// On a card of its own (dryrun::card_for) or a real card's room. Throws what training_step throws.
[[nodiscard]] Estimate estimate_memory(const formula::NamedModel& model,
                                       const formula::Settings& settings,
                                       const gpu::SimulatedCard& card, const Options& options = {});

// The document of `headroom estimate --json`, without advice. A card without limit is null, and so
// is whether it fits.
[[nodiscard]] Json to_json(const Estimate& estimate);

}  // namespace headroom::estimate
