// Estimates how much GPU memory a model of the catalogue needs to train, and whether it fits a
// card. It runs the model's own code on a simulated card whose tensors have no data: a dry run.
//
//   const auto llama = model::model_named("llama-3.1-8b");
//   model::Settings settings;
//   settings.batch = 2;
//   settings.dtype = model::Dtype::bfloat16;
//   const Estimate estimate = estimate_memory(llama, settings, dryrun::card_for("RTX 4090"));
//   estimate.fits();                           // false
//   to_string(estimate.report.peak.process);   // the memory it would need
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
  std::optional<allocator::Settings> allocator = {};  // empty: as in PYTORCH_CUDA_ALLOC_CONF
  bool keep_trace = false;                            // fill report.trace; not from a child
};

struct Estimate {
  std::string model;
  long long parameters = 0, trainable_parameters = 0;
  model::Settings settings;  // with the defaults of task, seq and image
  gpu::SimulatedCard card;
  trace::Report report;

  [[nodiscard]] bool fits() const { return report.fits(); }
  // The card's memory that is left at the peak, after the CUDA context. Negative if the model does
  // not fit.
  [[nodiscard]] Bytes spare() const;
};

// `card` comes from dryrun::card_for, or has the memory of a real card. In a process that uses a
// GPU the dry run happens in a child process, so the caller can train afterwards. Throws UsageError
// for settings that cannot run, and InputError for a config that the model cannot have.
[[nodiscard]] Estimate estimate_memory(const model::NamedModel& model,
                                       const model::Settings& settings,
                                       const gpu::SimulatedCard& card, const Options& options = {});

}  // namespace headroom::estimate
