#include "headroom/estimate/estimate.h"

#include <torch/nn/module.h>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/training_step.h"
#include "headroom/model/positions.h"

namespace headroom::estimate {
namespace {

// Fills in facts that need the built model.
void describe_model(Estimate& estimate, models::Model& model) {
  estimate.parameters = estimate.trainable_parameters = 0;
  for (const auto& parameter : model.module().parameters()) {
    estimate.parameters += parameter.numel();
    if (parameter.requires_grad()) estimate.trainable_parameters += parameter.numel();
  }
  estimate.settings.task = model.task();
  settle_sizes(model.config(), estimate.settings);
  estimate.settings.attention = model.settings().attention;
}

}  // namespace

Bytes Estimate::spare() const {
  return card.total - card.reserved - report.peak.process;
}

Estimate estimate_memory(const model::NamedModel& model, const model::Settings& settings,
                         const gpu::SimulatedCard& card, const Options& options) {
  Estimate estimate;
  estimate.model = model.name;
  estimate.settings = settings;
  estimate.card = card;
  const auto make = [&](c10::Device device) {
    const TrainingStep step = training_step(model.config, settings, device);
    describe_model(estimate, *step.model);
    return step.subject;
  };
  estimate.report =
      dryrun::dry_run(card, make, {.steps = settings.steps, .keep_trace = options.keep_trace},
                      {.rules = options.rules,
                       .settings = options.allocator,
                       .cublas_workspaces = options.rules == sim::Rules::cuda});
  return estimate;
}

}  // namespace headroom::estimate
