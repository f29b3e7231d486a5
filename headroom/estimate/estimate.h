// Estimates by dry run how much memory a published model needs to train, and whether it fits.
//
//   const auto model = model::model_named("llama-3.1-8b");
//   model::Settings settings;
//   settings.batch = 2;
//   settings.dtype = model::Dtype::bfloat16;
//   const Estimate estimate = estimate_memory(model, settings, dryrun::card_for("RTX 4090"));
//   estimate.fits();                              // false
//   to_string(estimate.report.peak.allocated);    // the memory it would need
#pragma once

#include <optional>
#include <string>

#include "headroom/allocator/settings.h"
#include "headroom/base/bytes.h"
#include "headroom/gpu/simulated.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"
#include "headroom/sim/card.h"
#include "headroom/trace/report.h"

namespace headroom::estimate {

struct Options {
  sim::Rules rules = sim::Rules::cuda;
  std::optional<allocator::Settings> allocator = {};  // empty: from the environment
  bool keep_trace = false;                            // Report::trace
};

struct Estimate {
  std::string model;
  long long parameters = 0, trainable_parameters = 0;
  model::Settings settings;  // with task and sizes filled in
  gpu::SimulatedCard card;
  trace::Report report;

  [[nodiscard]] bool fits() const { return report.fits(); }
  // Memory of the card left at the peak, with the process's CUDA context counted; negative if the
  // card is too small.
  [[nodiscard]] Bytes spare() const;
};

// Runs on a new simulated card (dryrun::card_for), or one with a real card's memory. Throws the
// exceptions of training_step.
[[nodiscard]] Estimate estimate_memory(const model::NamedModel& model,
                                       const model::Settings& settings,
                                       const gpu::SimulatedCard& card, const Options& options = {});

}  // namespace headroom::estimate
