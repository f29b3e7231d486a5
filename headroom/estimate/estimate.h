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

#include <string>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/dryrun/report.h"
#include "headroom/formula/model_catalogue.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/card.h"

namespace headroom::estimate {

struct Estimate {
  std::string model;
  long long parameters = 0, trainable_parameters = 0;
  formula::Settings settings;  // with the length that was meant
  gpu::SimulatedCard card;
  dryrun::Report report;

  [[nodiscard]] bool fits() const { return report.fits(); }
  // What is left of the card at the peak, the process's context included; negative: what is
  // missing.
  [[nodiscard]] Bytes spare() const;
};

// Throws what training_step throws.
[[nodiscard]] Estimate estimate_memory(const formula::NamedModel& model,
                                       const formula::Settings& settings,
                                       const gpu::SimulatedCard& card,
                                       sim::Rules rules = sim::Rules::cuda);

// The document of `headroom estimate --json`.
[[nodiscard]] Json to_json(const Estimate& estimate);

}  // namespace headroom::estimate
