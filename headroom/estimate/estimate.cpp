#include "headroom/estimate/estimate.h"

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>

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
}

bool is_unlimited(const gpu::SimulatedCard& card) {
  return card.total == allocator::kUnlimited;
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

Json to_json(const Estimate& estimate) {
  const gpu::SimulatedCard& card = estimate.card;
  const bool limited = !is_unlimited(card);
  Json json = {{"schema", 1},
               {"method", "dry-run"},
               {"model",
                {{"name", estimate.model},
                 {"parameters", estimate.parameters},
                 {"trainable_parameters", estimate.trainable_parameters}}},
               {"settings", model::to_json(estimate.settings)},
               {"device", limited ? Json{{"name", card.name},
                                         {"total_bytes", card.total.count},
                                         {"usable_bytes", (card.total - card.reserved).count}}
                                  : Json()}};
  json.update(dryrun::to_json(estimate.report));
  json["fits"] = limited ? Json(estimate.fits()) : Json();
  json["spare_bytes"] = limited ? Json(estimate.spare().count) : Json();
  return json;
}

}  // namespace headroom::estimate
