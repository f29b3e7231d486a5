// One attempt at a step, or a rank's part of it: all of it, or nothing. Everything that may fail
// comes before the optimizer's commit, which takes no memory; after a failure parameters, buffers,
// optimizer, scaler, random generators and what the loss changed in place (writes.h) are as before.
//
// Several ranks attempt a step together (parallel/layout.h). Each computes, on its own thread and
// device; then they agree, and all of them commit or undo. A rank that has failed takes part in the
// hand-overs and sums that are left, because the others wait for it. The CPU's generator belongs to
// all of them: the caller puts it back.
//
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/first_failure.h"
#include "headroom/memory/spill.h"
#include "headroom/nn/offload.h"
#include "headroom/optim/accumulation.h"
#include "headroom/optim/loss_scaler.h"
#include "headroom/optim/optimizer.h"
#include "headroom/parallel/border.h"
#include "headroom/parallel/layout.h"
#include "headroom/parallel/reducer.h"
#include "headroom/plan/pipeline.h"
#include "headroom/trace/recorder.h"
#include "headroom/train/detail/batch_rows.h"
#include "headroom/train/detail/buffers.h"
#include "headroom/train/detail/ties.h"
#include "headroom/train/detail/writes.h"
#include "headroom/train/objective.h"
#include "headroom/train/step_options.h"

namespace headroom::libtorch {
class RandomState;
}

namespace headroom::train::detail {

using PhaseNow = std::unique_ptr<trace::PhaseScope>;

// Where a rank stands among the others.
struct Place {
  parallel::Ranks ranks = {};
  plan::Pipeline pipeline = plan::Pipeline::one_by_one;
  std::vector<Tied> tied = {};
};

class Transaction {
 public:
  Transaction(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
              const StepOptions& options, Place place = {});

  // Null if the step has been committed; FailedElsewhere if another rank has failed.
  [[nodiscard]] std::exception_ptr try_once(const Tensors& batch, const Plan& plan);

  // Whether plans of this step may have the technique.
  [[nodiscard]] bool can(const std::string& technique) const;

  // Throws UsageError unless the trained parameters lie on the step's device.
  void check_place() const;

  // From now on what the passes save may wait on the host. So may the optimizer's states, after the
  // caller has given them to spill->end_step(). `spill` must live as long as this.
  void spill_by(memory::Spill* spill) { spill_ = spill; }
  // Of the optimizer.
  [[nodiscard]] Tensors states() const;

  // For a dry run in a child process: from now on the step runs on this card, where the module's
  // tensors have no values, without states of the optimizer and without the other ranks. `given`:
  // what the stage before gives for each part of a batch.
  void start_anew_on(c10::Device card, std::optional<std::vector<Tensors>> given = {});
  // After such a run: what this stage has given to the next one.
  [[nodiscard]] const std::vector<Tensors>& given() const { return after_->given(); }
  // Hears where a pass of a part begins, and where the last one ends.
  void hear_passes(std::function<void()> on_pass) { on_pass_ = std::move(on_pass); }
  // An attempt that rethrows its failure.
  void attempt(const Tensors& batch, const Plan& plan, libtorch::RandomState& random);
  void drop_gradients();
  // After an attempt on its own: what a step gives back at its end.
  void end_alone();

  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] const Objective& objective() const { return objective_; }
  [[nodiscard]] torch::nn::Module& module() { return module_; }
  [[nodiscard]] optim::Optimizer& optimizer() { return optimizer_; }
  [[nodiscard]] std::optional<optim::LossScaler>& scaler() { return scaler_; }
  // The techniques that have changed the model for good, or begun to (plan/technique.h).
  [[nodiscard]] const Plan& lasting() const { return lasting_; }
  [[nodiscard]] std::int64_t commits() const { return commits_; }
  void set_commits(std::int64_t commits) { commits_ = commits; }
  // The figures of the last commit. The norm is undefined if no option needs it. They keep their
  // values as long as they are kept.
  [[nodiscard]] const at::Tensor& loss() const { return kept_->loss; }
  [[nodiscard]] at::Tensor norm() const;

 private:
  // Kept from attempt to attempt: made by the first one, all of it or nothing.
  struct Kept {
    Buffers buffers;
    at::Tensor loss, norm;
    at::Tensor shared;  // with other ranks: loss, infinite gradients, square of the norm
  };

  // Reports the running phase to a recorder of the device's memory, if there is one.
  [[nodiscard]] PhaseNow phase(trace::Phase phase) const;
  [[nodiscard]] bool spills() const { return spill_ != nullptr && !is_dry_ && !device_.is_cpu(); }
  [[nodiscard]] std::int64_t terms(const Tensors& rows) const;
  void follow(const Plan& plan);
  void move_to(c10::Device device);
  [[nodiscard]] bool is_alone() const { return place_.ranks.all.size() == 1; }
  [[nodiscard]] bool is_split() const { return place_.ranks.stages.size() > 1; }
  [[nodiscard]] std::vector<c10::Device> own_devices() const;
  void prepare();
  void begin_numbers();
  [[nodiscard]] bool needs_norm() const;
  [[nodiscard]] PhaseNow compute(const Tensors& batch, const Plan& plan,
                                 libtorch::RandomState& random, FirstFailure& failure);
  // A part between its forward and its backward pass.
  struct InFlight {
    Tensors given;                               // by the stage before
    std::vector<torch::autograd::Edge> outputs;  // of the graph, where gradients come in
    at::Tensor share;  // of the loss; undefined unless this is the last stage
  };
  void begin_parts(const Tensors& batch, bool pools, libtorch::RandomState& random);
  void run_parts(const Tensors& batch, const Plan& plan, libtorch::RandomState& random,
                 FirstFailure& failure);
  [[nodiscard]] Tensors outputs_of(const Tensors& rows, const Tensors& given);
  [[nodiscard]] Tensors run_forward(const Tensors& rows, std::int64_t in_all, InFlight& part);
  void forward(const Tensors& rows, std::int64_t in_all, FirstFailure& failure);
  void backward(bool is_last, FirstFailure& failure);
  void run_backward(InFlight& part, const Tensors& gradients);
  void meet_others(std::optional<std::vector<Tensors>> given = {});
  void add_up(const Tensors& batch, FirstFailure& failure);
  void share_numbers(const at::Tensor& norm, bool ok);
  void clip(const at::Tensor& norm);
  void update();
  void commit();
  void undo(const libtorch::RandomState& random);

  torch::nn::Module& module_;
  std::vector<torch::nn::Module*> modules_;  // it, and the objective's further ones
  optim::Optimizer& optimizer_;
  Objective objective_;
  StepOptions options_;
  Place place_;
  std::optional<parallel::Reducer> reducer_;        // among several replicas
  std::optional<parallel::Border> before_, after_;  // to the stages beside this one
  Ties ties_;
  std::deque<InFlight> in_flight_;
  c10::Device home_, device_;  // at the start, and now
  std::int64_t commits_ = 0;
  std::optional<optim::LossScaler> scaler_;
  std::vector<std::optional<double>> rates_;  // of the optimizer's groups, without the schedule
  std::unique_ptr<Kept> kept_;
  Writes writes_;
  std::optional<nn::Offload> offload_;
  memory::Spill* spill_ = nullptr;
  std::optional<Plan> followed_;
  std::optional<Plan> agreed_;  // all ranks follow it
  Plan lasting_;
  bool is_dry_ = false;
  std::function<void()> on_pass_;
};

// What a rank's attempt ends with if another one has failed.
struct FailedElsewhere final : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "another rank has failed"; }
};

}  // namespace headroom::train::detail
