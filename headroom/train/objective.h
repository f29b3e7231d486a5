// The function that a training step minimises, for any module: from some rows of a batch to their
// mean loss.
//
//   const Objective objective{.loss = [&](const Tensors& rows) {
//     return torch::cross_entropy(net->forward(rows[0]), rows[1]);
//   }};
//
// A batch is a list of tensors whose first dimension counts the same rows; one that is undefined
// stays so. The loss gets some of the rows, already on the model's device.
//
// The loss may run several times for the same rows. After a failure the step puts back what
// LibTorch's operators changed in place meanwhile, in any tensor that is older than the step: the
// buffers of these and other modules, averages of weights, counters, rows. Everything else that the
// loss changes counts twice: numbers and files of the program, a variable that gets another tensor
// (`state = next`; write `state.copy_(next)`), and what is written through data_ptr().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "headroom/train/plan.h"

namespace torch::nn {
class Module;
}

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
  std::function<at::Tensor(const Tensors& rows)> loss = {};
  // Instead of the loss, on a stage of a split model (team.h): what this stage makes of what the
  // stage before has returned, which the first one does not get. The last one returns the loss.
  std::function<Tensors(const Tensors& rows, const Tensors& given)> part = {};
  // Which tensors of the batch `part` uses; the others are undefined there. Empty: all.
  std::vector<bool> uses = {};
  // How many terms that mean has for these rows: texts have labels, and rows have unequal numbers
  // of them. Gets the rows as they came, before they move to the device. Without a function, each
  // row is one term.
  std::function<std::int64_t(const Tensors& rows)> terms = {};
  // For evaluation, with the rows on the model's device. Without a function, the loss alone.
  std::function<Score(const Tensors& rows)> score = {};
  // The same on the last stage of a split model, with what the stage before has returned. Without a
  // function, the loss alone.
  std::function<Score(const Tensors& rows, const Tensors& given)> part_score = {};
  // Puts the model into the form that a plan asks for: checkpointing, a fused loss. Without a
  // function, the model has only one form.
  std::function<void(const Plan&)> follow = {};
  // That `follow` knows: "checkpointing", "fused_loss". One whose rung lasts, as "quantize_8bit"
  // (plan/technique.h), may change the result for good; naming it permits that.
  std::set<std::string> techniques = {};
  // Further modules that the loss uses: the other network of a GAN, a teacher, an average of the
  // weights. Their changes are undone without this, too. With it their batch norm counts a batch in
  // several parts once, they move with the model to another device, offload leaves their weights
  // where they are, and their memory is in the prices of the plans. They must live as long as the
  // step. Example: {.loss = ..., .also = {generator.get()}}.
  std::vector<torch::nn::Module*> also = {};
};

}  // namespace headroom::train
