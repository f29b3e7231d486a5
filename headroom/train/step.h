// A training step that cannot be lost. It takes a batch and ends in one of two ways: committed, or
// as if it had not begun. When memory runs out, in the transfer of the data, in the forward or the
// backward pass, in clipping or anywhere else, parameters, buffers, optimizer, loss scaler, random
// generators and all other tensors that the loss has changed in place (objective.h) are put back,
// and the step runs again under the next plan of the ladder (ladder.h).
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
// The effective batch never changes: with a plan of a smaller micro-batch the gradients of the
// parts add up to those of the whole batch, weighted by the terms of their losses (objective.h).
// Parts have nearly equal sizes. The result is that of a run without the failure that is given the
// same plan, to the bit where the device computes the same twice. detail/buffers.h says how batch
// norm counts a batch in parts. What a rung that lasts changed (plan.h) stays changed, also if the
// step is put back.
//
// Batches may lie on the host, page-locked or not, or on the device. A failure other than an
// out-of-memory is not retried: run() rethrows it and leaves no trace of the step. The exception is
// a plan that the step has chosen and never run: batch norm refuses a single row, for example.
// Larger parts are tried then, and if none runs, run() throws the step's out-of-memory.
//
// Gradients are gone after run(), as after zero_grad(). To log their norms layer by layer, take
// them in a hook: parameter.register_hook(...) gets the gradient of each part of each attempt.
//
// Before the first step it prices its plans by dry runs (prices.h) and begins with the fastest one
// that fits. Later it looks ahead: a batch that would not fit, or a neighbour that has taken
// memory, makes the plan smaller before anything fails, and a faster plan comes back when there is
// room (detail/adaptation.h).
//
// With StepOptions::spill an attempt does not fail as long as what is needed later can wait on the
// host: the plan stays, and the result is that of a card with more memory, to the bit.
//
// Optimizers that cannot commit without memory (loop, foreach) are protected by copies in host
// memory, which are slow: prefer the fused forms.
//
// Replicas of a model train on several cards (team.h): they divide the rows of a batch, and add up
// their gradients. The promise is the same: all of them commit a step, or all of them undo it.
//
// Threads: one step, one thread at a time, and one step at a time on a thread; run() checks it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/optim/optimizer.h"
#include "headroom/parallel/layout.h"
#include "headroom/train/event.h"
#include "headroom/train/objective.h"
#include "headroom/train/plan.h"
#include "headroom/train/prices.h"
#include "headroom/train/step_options.h"
#include "headroom/train/team.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace headroom::train {

// The numbers of a committed step. They lie on the device until they are read; kept results keep
// their own numbers.
class Committed {
 public:
  [[nodiscard]] double loss() const;           // the mean over the batch
  [[nodiscard]] double gradient_norm() const;  // before clipping; NaN if no option needs it
  std::int64_t step = 0;                       // from 1
  std::int64_t rows = 0;
  std::int64_t micro_batch = 0;  // rows of the largest part, of each replica
  int attempts = 1;
  Plan plan;                  // of the attempt that committed
  std::vector<Event> events;  // of this step, the first ones first

 private:
  friend class Step;
  at::Tensor loss_, norm_;
};

class Step {
 public:
  // Throws UsageError for options that make no sense, for a plan that the objective cannot follow,
  // for an optimizer of another module or of frozen parameters, and if the trained parameters lie
  // on several devices. Module and optimizer must live as long as the step, and stay on their
  // device.
  Step(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
       const StepOptions& options = {});
  // Throws UsageError also if two ranks have one device, or an optimizer needs memory to commit
  // (the forms loop and foreach).
  explicit Step(Team team, const StepOptions& options = {});
  // Does not compile: an optimizer of torch::optim cannot be put back, and from_torch takes it
  // over.
  template <std::derived_from<torch::optim::Optimizer> Theirs>
  Step(torch::nn::Module& module, Theirs& theirs, Objective objective,
       const StepOptions& options = {})
      : Step(module, ours(theirs), std::move(objective), options) {}
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Prices the plans for batches like this one, and chooses the first plan. run() does it before
  // the first step if it has not been called. Call it before the optimizer's saved state is loaded,
  // and with several steps in a program call it for each before the first run().
  void prepare(const Tensors& batch);
  // Throws UsageError for a batch without rows, a loss that is not one number with a graph, and a
  // model that has left the device where the step was made. Throws the last out-of-memory if the
  // ladder has no plan left. The next run() begins with the plan from before; the model may be on
  // another device until then, if that was allowed.
  Committed run(const Tensors& batch);

  // The plan with which run() would begin a batch of this many rows, of the priced shape, if it
  // could have this much memory: usable() for now. Not after the first step.
  [[nodiscard]] Plan first_plan(std::int64_t rows, const std::optional<PerStage>& usable) const;
  // For the next step, which begins with it. Throws UsageError if the objective cannot follow it.
  void set_plan(const Plan& plan);
  // Parts of about three quarters from the next step on, for a batch of this many rows: a neighbour
  // needs memory. std::nullopt if there are no smaller ones, or the plan must not change.
  std::optional<Event> shrink(std::int64_t rows);
  // The fastest plan for this many rows that fits in what is usable now and moves nothing to the
  // host. std::nullopt if none does, or prices are not known.
  [[nodiscard]] std::optional<Plan> plan_without_spill(std::int64_t rows) const;
  // The plan that needs the least memory for this many rows, of those that are allowed, or that a
  // smaller `min_micro_batch` would allow. std::nullopt if prices are not known.
  [[nodiscard]] std::optional<PricedPlan> least_plan(std::int64_t rows) const;
  [[nodiscard]] std::optional<PricedPlan> least_plan(std::int64_t rows,
                                                     std::int64_t min_micro_batch) const;
  [[nodiscard]] const Plan& plan() const;
  // Null if not known; then `why_unpriced` says why.
  [[nodiscard]] const Prices* prices() const;
  [[nodiscard]] const std::string& why_unpriced() const;

  // The memory that this process could have on the step's devices now, which a plan must fit into:
  // what it holds, what is free, at most what StepOptions::usable allows; of replicas on the one
  // with the least. std::nullopt on a CPU, or if not known.
  [[nodiscard]] std::optional<PerStage> usable() const;

  // Whether its plan stays although it does not fit, because what does not fit waits on the host.
  [[nodiscard]] bool keeps_plan() const;
  // What waited on the host so far; std::nullopt without StepOptions::spill.
  [[nodiscard]] std::optional<memory::SpillUse> spilled() const;
  // Requests that were refused and served since the last call, as an event; std::nullopt if there
  // were none. run() has told of its own: this is for work beside it, such as an evaluation.
  std::optional<Event> news_of_spill();
  // The last attempt that ran out of memory; null if none did.
  [[nodiscard]] const Failure* last_failure() const;

  [[nodiscard]] std::int64_t steps() const;                // committed
  void set_steps(std::int64_t steps);                      // of a run that goes on
  [[nodiscard]] c10::Device device() const;                // where the model is; of rank 0
  [[nodiscard]] std::vector<c10::Device> devices() const;  // of all ranks
  [[nodiscard]] parallel::Layout layout() const;
  // Of a rank.
  [[nodiscard]] torch::nn::Module& module(std::size_t rank = 0);
  [[nodiscard]] const Objective& objective(std::size_t rank = 0) const;
  [[nodiscard]] optim::Optimizer& optimizer(std::size_t rank = 0);
  [[nodiscard]] optim::LossScaler* scaler(std::size_t rank = 0);  // null without scaling

 private:
  template <typename Theirs>
  static optim::Optimizer& ours(Theirs& theirs) {
    static_assert(
        !std::derived_from<Theirs, torch::optim::Optimizer>,
        "train::Step takes an optimizer of headroom::optim, such as make_adamw(parameters); "
        "optim::from_torch(optimizer) of headroom/optim/from_torch.h takes over one of "
        "torch::optim, with its states");
    return reinterpret_cast<optim::Optimizer&>(theirs);  // never runs
  }

  class State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::train
