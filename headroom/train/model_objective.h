// The objective of a published model (models/model.h): its task's own loss.
//
//   train::Step step(model->module(), *optimizer, train::objective_of(model));
//   step.run(train::tensors_of(batch));
//
// A batch is five tensors: tokens, mask, pixels, labels, targets; those that the model does not
// take are undefined. The model follows plans: checkpointing of every layer, and the fused loss
// where the task's loss is over tokens. A setting that the model was built with stays. Of a part of
// a model it is the objective of a stage (team.h).
#pragma once

#include <memory>

#include "headroom/models/model.h"
#include "headroom/train/objective.h"

namespace headroom::train {

struct ModelObjectiveOptions {
  // The ladder may store frozen weights in 8 bit, then in 4 (nn/quantise.h), when nothing else
  // makes a step fit. This changes the result of the training, and is not undone.
  bool quantises = false;
};

[[nodiscard]] Objective objective_of(const std::shared_ptr<models::Model>& model,
                                     const ModelObjectiveOptions& options = {});

[[nodiscard]] Tensors tensors_of(const models::Batch& batch);
[[nodiscard]] models::Batch batch_of(const Tensors& tensors);

}  // namespace headroom::train
