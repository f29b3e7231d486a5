// Estimates how much GPU memory a model needs to train, and whether it fits a card. The model is
// one of the catalogue, or a config.json. It runs the model's own code on a simulated card whose
// tensors have no data: a dry run.
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
  // std::nullopt: taken from PYTORCH_CUDA_ALLOC_CONF.
  std::optional<allocator::Settings> allocator = {};
  bool keep_trace = false;  // of a run in a child it stays there
};

struct Estimate {
  std::string model;
  long long parameters = 0, trainable_parameters = 0;
  model::Settings settings;  // as passed, with task, seq and image filled in
  gpu::SimulatedCard card;
  trace::Report report;

  [[nodiscard]] bool fits() const { return report.fits(); }
  // The card's memory that is left at the peak, after the CUDA context. Negative if the model does
  // not fit.
  [[nodiscard]] Bytes spare() const;
};

// Pass a card from dryrun::card_for("RTX 4090"), or one with the memory of a real card. If this
// process has GPUs, used or not, the dry run happens in a child process, so this one can still
// train on them (sim/child.h). Throws UsageError for settings that cannot run, InputError for an
// invalid config, such as images smaller than a patch, and UnavailableError if a child cannot run.
[[nodiscard]] Estimate estimate_memory(const model::NamedModel& model,
                                       const model::Settings& settings,
                                       const gpu::SimulatedCard& card, const Options& options = {});

}  // namespace headroom::estimate
