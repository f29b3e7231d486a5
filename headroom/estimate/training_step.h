// One whole training step of a model with all its settings, on a device; dry runs measure it.
//
//   trace::Report report = dryrun::dry_run("RTX 4090", [&](c10::Device device) {
//     return training_step(config, settings, device).subject;
//   });
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "headroom/dryrun/dry_run.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"
#include "headroom/models/model.h"

namespace headroom::estimate {

struct TrainingStep {
  std::shared_ptr<models::Model> model;
  dryrun::Subject subject;  // keeps everything it needs alive
};

// Makes model, optimizer and a batch without values on the device. A step does the work of a
// training loop: forward, loss and backward for each micro-batch; clipping; the optimizer; freeing
// or zeroing the gradients. With Mode::inference a step is a forward pass without a graph.
//
// With float16 autocast the loss is scaled (optim/loss_scaler.h). With LoRA the adapters and a
// classifier's head are trained; with a frozen backbone the heads (nn/freeze.h).
//
// Throws UsageError for settings that cannot run (model/can_run.h) or that this model does not
// support.
[[nodiscard]] TrainingStep training_step(const model::ModelConfig& config,
                                         const model::Settings& settings, c10::Device device);

}  // namespace headroom::estimate
