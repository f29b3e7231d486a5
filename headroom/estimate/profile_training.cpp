#include "headroom/estimate/profile_training.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <utility>

#include "headroom/dryrun/step_run.h"
#include "headroom/estimate/training_step.h"
#include "headroom/model/positions.h"
#include "headroom/profile/profiler.h"

namespace headroom::estimate {
namespace {

profile::Profile profile_on(const gpu::SimulatedCard& card,
                            const std::function<dryrun::Subject(c10::Device)>& make, int steps,
                            const dryrun::CardOptions& options) {
  const sim::Simulation box = sim::simulate(gpu::SimulatedBox{.cards = {card}, .name = {}},
                                            {.mode = sim::Mode::shape_only,
                                             .rules = options.rules,
                                             .settings = options.settings,
                                             .cublas_workspaces = options.cublas_workspaces});
  const dryrun::Subject subject = make(box.device(0));
  profile::NamedTensors tensors = subject.parameters;
  tensors.insert(tensors.end(), subject.buffers.begin(), subject.buffers.end());
  profile::Profiler profiler(tensors);
  for (int step = 0; step < steps; ++step) {
    profiler.begin_step();
    subject.step();
  }
  return profiler.end();
}

}  // namespace

TrainingProfile profile_steps(const gpu::SimulatedCard& card,
                              const std::function<dryrun::Subject(c10::Device)>& make, int steps,
                              const dryrun::CardOptions& options) {
  TrainingProfile found;
  try {
    found.profile = profile_on(card, make, steps, options);
  } catch (const c10::OutOfMemoryError&) {
    found.fits = false;
    found.profile = profile_on(dryrun::without_limit(card), make, steps, options);
  }
  return found;
}

TrainingProfile profile_training(const model::NamedModel& model, const model::Settings& settings,
                                 const gpu::SimulatedCard& card, const Options& options) {
  TrainingProfile about;
  about.settings = settings;
  const auto make = [&](c10::Device device) {
    const TrainingStep step = training_step(model.config, settings, device);
    about.parameters = about.trainable_parameters = 0;
    for (const auto& parameter : step.model->module().parameters()) {
      about.parameters += parameter.numel();
      if (parameter.requires_grad()) about.trainable_parameters += parameter.numel();
    }
    about.settings.task = step.model->task();
    settle_sizes(model.config, about.settings);
    return step.subject;
  };
  TrainingProfile found = profile_steps(card, make, settings.steps,
                                        {.rules = options.rules,
                                         .settings = options.allocator,
                                         .cublas_workspaces = options.rules == sim::Rules::cuda});
  about.profile = std::move(found.profile);
  about.fits = found.fits;
  return about;
}

}  // namespace headroom::estimate
