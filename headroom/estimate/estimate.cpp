#include "headroom/estimate/estimate.h"

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/training_step.h"

namespace headroom::estimate {
namespace {

void count_parameters(Estimate& estimate, const formula::ModelConfig& config,
                      const formula::Settings& settings) {
  const TrainingStep step = training_step(config, settings, c10::Device(c10::kMeta));
  for (const auto& parameter : step.model->module().parameters()) {
    estimate.parameters += parameter.numel();
    if (parameter.requires_grad()) estimate.trainable_parameters += parameter.numel();
  }
}

}  // namespace

Bytes Estimate::spare() const {
  return card.total - card.reserved - report.peak.process;
}

Estimate estimate_memory(const formula::NamedModel& model, const formula::Settings& settings,
                         const gpu::SimulatedCard& card, sim::Rules rules) {
  Estimate estimate;
  estimate.model = model.name;
  estimate.settings = settings;
  estimate.settings.seq = sequence_length(model.config, settings);
  estimate.card = card;
  count_parameters(estimate, model.config, settings);
  estimate.report = dryrun::dry_run(
      card,
      [&](c10::Device device) { return training_step(model.config, settings, device).subject; },
      {.steps = settings.steps, .keep_trace = false},
      {.rules = rules, .cublas_workspaces = rules == sim::Rules::cuda});
  return estimate;
}

Json to_json(const Estimate& estimate) {
  Json json = {
      {"schema", 1},
      {"method", "dry-run"},
      {"model",
       {{"name", estimate.model},
        {"parameters", estimate.parameters},
        {"trainable_parameters", estimate.trainable_parameters}}},
      {"settings", formula::to_json(estimate.settings)},
      {"device", {{"name", estimate.card.name}, {"total_bytes", estimate.card.total.count}}}};
  json.update(dryrun::to_json(estimate.report));
  json["fits"] = estimate.fits();
  json["spare_bytes"] = estimate.spare().count;
  return json;
}

}  // namespace headroom::estimate
