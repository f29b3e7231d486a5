// What a training step minimises, for any module: a function from some rows of a batch to their
// mean loss.
//
//   const Objective objective{.loss = [&](const Tensors& rows) {
//     return torch::cross_entropy(net->forward(rows[0]), rows[1]);
//   }};
//
// A batch is a list of tensors whose first dimension counts the same rows. The loss gets some of
// the rows, already on the model's device. It may run several times for the same rows, so it must
// have no effect but those on the model's buffers and on LibTorch's random generators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/train/plan.h"

namespace headroom::train {

using Tensors = std::vector<at::Tensor>;

// How well the model does on some rows.
struct Score {
  at::Tensor loss;    // the mean, one number
  at::Tensor right;   // how many rows got the right answer; undefined: not counted
  at::Tensor logits;  // [rows, classes]; undefined: the model predicts no class
};

struct Objective {
  // The mean loss: one number.
  std::function<at::Tensor(const Tensors& rows)> loss;
  // How many terms that mean has for these rows: texts have labels, and rows have unequal numbers
  // of them. Gets the rows as they came, before they move to the device. Empty: a term a row.
  std::function<std::int64_t(const Tensors& rows)> terms = {};
  // For evaluation, with the rows on the model's device. Empty: the loss alone.
  std::function<Score(const Tensors& rows)> score = {};
  // Puts the model into the form that a plan asks for: checkpointing, a fused loss. Empty: the
  // model has only one form.
  std::function<void(const Plan&)> follow = {};
  bool can_checkpoint = false, can_fuse_loss = false;  // what `follow` knows
};

}  // namespace headroom::train
