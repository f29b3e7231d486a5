// A training step that cannot be lost. It takes a batch and ends in one of two ways: committed, or
// as if it had not begun. When memory runs out, in the transfer of the data, in the forward or the
// backward pass, in clipping or anywhere else, parameters, buffers, optimizer, loss scaler and random
// generators are put back, and the step runs again under the next plan of the ladder (ladder.h).
//
//   auto optimizer = optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
//   train::Step step(*net, *optimizer, {.loss = [&](const train::Tensors& rows) {
//     return torch::cross_entropy(net->forward(rows[0]), rows[1]);
//   }});
//   for (const auto& batch : *loader) {
//     const train::Committed done = step.run({batch.data, batch.target});
//     say(done.loss());
//   }
//
// The effective batch never changes: with a plan of a smaller micro-batch the gradients of the parts
// add up to those of the whole batch, weighted by the terms of their losses (objective.h). Parts
// have nearly equal sizes. The result is that of a run without the failure that is given the same
// plan, to the bit where the device computes the same twice. detail/buffers.h says how batch norm
// counts a batch in parts.
//
// Batches may lie on the host, page-locked or not, or on the device. A failure that is no
// out-of-memory is not retried: run() throws it, and the step has not begun, too.
//
// Optimizers that cannot commit without memory (loop, foreach) are protected by copies in host
// memory, which are slow: prefer the fused forms.
//
// Threads: one step, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/optim/loss_scaler.h"
#include "headroom/optim/optimizer.h"
#include "headroom/optim/schedule.h"
#include "headroom/train/event.h"
#include "headroom/train/ladder.h"
#include "headroom/train/objective.h"
#include "headroom/train/plan.h"

namespace torch::nn {
class Module;
}

namespace headroom::train {

struct StepOptions {
  double max_grad_norm = 0;                          // clips the norm of all gradients; 0: does not
  std::optional<c10::ScalarType> autocast = {};      // the type of matrix products
  std::optional<optim::LossScalerOptions> scaling = {};  // of the loss, for float16
  optim::Schedule schedule = {};  // a factor on the optimizer's learning rates, by step; empty: 1
  LadderOptions ladder = {};
  Plan plan = {};                         // to begin with
  std::function<void(const Event&)> on_event = {};  // each thing that memory made the step do
};

// The numbers of a committed step. They lie on the device until they are read, and the next step
// overwrites them.
class Committed {
 public:
  [[nodiscard]] double loss() const;           // the mean over the batch
  [[nodiscard]] double gradient_norm() const;  // before clipping; NaN if it was not asked for
  std::int64_t step = 0;                       // from 1
  std::int64_t rows = 0;
  int attempts = 1;
  Plan plan;                  // of the attempt that committed
  std::vector<Event> events;  // of this step, the first ones first

 private:
  friend class Step;
  at::Tensor loss_, norm_;
};

class Step {
 public:
  // Throws UsageError for buffers that cannot be put back (it names them) and for options that make
  // no sense. Module and optimizer must live as long as the step.
  Step(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
       const StepOptions& options = {});
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Throws the failure of the last attempt if the ladder has no plan left.
  Committed run(const Tensors& batch);

  // For the next step. Its micro-batch may become smaller than this if memory runs out.
  void set_plan(const Plan& plan);
  [[nodiscard]] const Plan& plan() const;

  [[nodiscard]] std::int64_t steps() const;  // committed
  [[nodiscard]] optim::LossScaler* scaler();  // null without scaling
  [[nodiscard]] torch::nn::Module& module();
  [[nodiscard]] optim::Optimizer& optimizer();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::train
