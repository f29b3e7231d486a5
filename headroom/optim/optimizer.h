// PyTorch's Python optimizers, operation for operation, with their temporaries and lifetimes: a
// step allocates what Python's step allocates, at the same moments. C++'s torch::optim has loops of
// its own, and no other form.
// Source: torch/optim/{sgd,adam,adamw,rmsprop,_adafactor}.py of PyTorch 2.11, and
// transformers.optimization of 4.57.6.
//
//   const auto optimizer = optim::make_adamw(model->module().parameters());
//   loss.backward();
//   optimizer->step();
//   optimizer->zero_grad();
//
// The three forms compute the same and differ in temporaries. `loop` updates one parameter after
// another, with temporaries of up to three times the largest parameter. `foreach` updates all
// together, with temporaries as large as all parameters. `fused` needs none.
//
// A step that cannot run out of memory:
//
//   optimizer->reserve();   // all states, before the first step: all or none
//   ...                     // forward, backward, clipping: a failure here changes no parameter
//   optimizer->commit();    // allocates nothing on the device
//
// Several groups of parameters with options of their own:
//
//   optim::make_adamw({{weights, {.weight_decay = 0.1}}, {biases, {.weight_decay = 0}}});
//
// One thing differs: Python makes some state between the updates of two parameters (SGD's first
// step, transformers' Adafactor). Here all state is made before the first update.
//
// from_torch.h takes over an optimizer of torch::optim, with its states.
//
// Not supported: maximize, capturable, differentiable, hyperparameters given as tensors, complex
// parameters. Adagrad and LBFGS have no counterpart here. A parameter that requires no gradient is
// left alone until it does.
//
// Threads: one optimizer, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/model/run_settings.h"

namespace headroom::optim {

using model::OptimizerForm;
using model::Rounding;

// An optimizer's state for one parameter, under PyTorch's names ("exp_avg").
using State = std::map<std::string, at::Tensor>;

// From a loss scaler to the fused forms, which unscale and skip by themselves. An undefined tensor
// means none.
struct GradientScale {
  at::Tensor scale;       // gradients are too large by this factor
  at::Tensor not_finite;  // not zero: a gradient is infinite or NaN, so the step is skipped
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the parameters that have a gradient. The first step that needs state makes all of it
  // before it changes any parameter, or none of it if memory runs out.
  //
  // A step that threw may be repeated, unless it was interrupted().
  void step();
  // Throws UsageError unless takes_scale().
  void step(const GradientScale& scale);
  [[nodiscard]] virtual bool takes_scale() const { return false; }

  // True if the last step threw (an out-of-memory error, for instance) after it began to change
  // parameters or states. The forms loop and foreach can do that, and the fused form if parameters
  // on several devices share a loss scaler's numbers. Repeating it would apply
  // some updates twice, so step() throws UsageError until restored() declares that parameters and
  // states are as before that step (set_state).
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  void restored() { interrupted_ = false; }
  // From now on a step of the forms loop or foreach copies parameters, gradients and states to host
  // memory first, and puts them back if it throws. So no step is interrupted().
  void protect(bool with_copies = true) { protected_ = with_copies; }

  // Makes the state of every parameter that requires a gradient, and everything else that commit()
  // needs: all of it, or none if memory runs out. States that are there stay.
  void reserve();
  // step() without a single request to the device's allocator, and without waiting for the device.
  // Needs reserve() before. Throws UsageError for a parameter with a gradient that has not been
  // reserved, or unless can_commit(): the fused forms can, and RMSprop and torch.optim's Adafactor
  // in every form. Adafactor sums in another order than in step().
  void commit(const GradientScale& scale = {});
  [[nodiscard]] virtual bool can_commit() const { return form_ == OptimizerForm::fused; }

  // Frees the gradients, or fills them with zeros and keeps their memory.
  void zero_grad(bool set_to_none = true);

  // The parameters of all groups, in order.
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }

  [[nodiscard]] std::size_t groups() const { return group_ends_.size(); }
  // The learning rate of a group. The setter without a group sets that of every group.
  // transformers' Adafactor with relative_step has none, and refuses one with UsageError.
  [[nodiscard]] std::optional<double> learning_rate(std::size_t group = 0) const;
  void set_learning_rate(double rate);
  void set_learning_rate(double rate, std::size_t group);

  // For saving and restoring. state() gives the optimizer's own tensors, not copies; it is empty
  // before the first step or reserve(). set_state() keeps values bit for bit, and moves them to the
  // parameter's device: `set_state(i, state(i))` after the model has moved. It throws UsageError
  // for tensors that are not those of such a state.
  [[nodiscard]] const State& state(std::size_t parameter) const;
  void set_state(std::size_t parameter, State state);

 protected:
  // The parameters of a group that have a gradient, in order, with their states.
  struct Trained {
    std::vector<at::Tensor> parameters, gradients;
    std::vector<State*> states;
    std::vector<std::size_t> indices;  // in parameters()
    std::vector<bool> is_new;          // this is the first update
    std::vector<bool> made_now;        // the state was made in this step, from the gradient
  };
  struct Part {  // a group
    std::vector<at::Tensor> parameters;
    std::optional<double> learning_rate;
  };
  Optimizer(const std::vector<Part>& groups, OptimizerForm form);
  // Throws UsageError for parameters and gradients that this optimizer cannot step.
  virtual void check(const Trained&) const {}
  // The state of a parameter before its first update. reserve() has no gradient: it is undefined.
  [[nodiscard]] virtual State make_state(std::size_t group, const at::Tensor& parameter,
                                         const at::Tensor& gradient) const = 0;
  virtual void update(std::size_t group, Trained& trained, const GradientScale& scale) = 0;
  // Reserves what commit() needs besides states.
  virtual void reserve_scratch(const std::vector<at::Tensor>&) {}
  // update() without allocating.
  virtual void update_in_place(std::size_t group, Trained& trained, const GradientScale& scale) {
    update(group, trained, scale);
  }
  [[nodiscard]] OptimizerForm form() const { return form_; }
  // The tensors of this name from all states; undefined where a state has none.
  [[nodiscard]] static std::vector<at::Tensor> kept(const Trained& trained, const char* name);
  // The device of the step count: the fused forms read it on the card.
  [[nodiscard]] c10::Device place_of_steps(const at::Tensor& parameter) const;
  // The scale on a parameter's device; copied there if it lies on another one, into tensors that
  // reserve() made if that has run.
  [[nodiscard]] GradientScale here(c10::Device device, const GradientScale& scale) const;

 private:
  struct Copies;  // in host memory, of everything that a step may change

  [[nodiscard]] std::vector<Trained> trained();
  void make_states(std::vector<Trained>& groups) const;
  void run(const GradientScale& scale, bool in_place);
  void check_reserved(const std::vector<Trained>& groups) const;
  void check_state(std::size_t parameter, const State& state) const;
  void check_group(std::size_t group) const;
  static void forget_new_states(const std::vector<Trained>& groups);
  void fill_gradients() const;

  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> group_ends_;                // in parameters_
  std::vector<std::optional<double>> learning_rates_;  // of each group
  std::vector<State> states_;
  std::vector<bool> has_run_;  // the parameter had an update, or its state was set
  std::vector<bool> is_reserved_;
  std::vector<std::pair<c10::Device, GradientScale>> reserved_scales_;
  OptimizerForm form_;
  bool interrupted_ = false, protected_ = false;
};

// ---- The kinds, with PyTorch's defaults. `form` defaults to PyTorch's default on a GPU. Each
// function throws UsageError for what PyTorch refuses, too: such numbers, and no parameters.

struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;  // if not 0, keeps one tensor as large as the parameter
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  OptimizerForm form = OptimizerForm::foreach;
  // How parameters of 16 bits and their state are rounded. Stochastically only in the form fused,
  // which counts steps.
  Rounding rounding = Rounding::nearest;
  std::uint64_t seed = 0;  // of stochastic rounding
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool amsgrad = false;     // keeps a third state tensor
  OptimizerForm form = OptimizerForm::foreach;
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  // subtracted from the parameter
  bool amsgrad = false;
  OptimizerForm form = OptimizerForm::foreach;
  // How parameters of 16 bits and their states are rounded. Stochastically only in the form fused
  // and without amsgrad.
  Rounding rounding = Rounding::nearest;
  std::uint64_t seed = 0;  // of stochastic rounding
};

// AdamW whose states are codes of 8 or 4 bits, with a float scale for each 256 or 128 of them: 2.03
// or 1.06 bytes a parameter. It is always fused: commit() and a step are the same. Parameters below
// 4,096 numbers keep float states, whatever their own type. States: `step`; `state1` and `state2`,
// of the first and second moment; `absmax1` and `absmax2`, the scales.
struct CompactAdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  // subtracted from the parameter
  int bits = 8;                // 8: as bitsandbytes; 4: as torchao. The same in all groups
  Rounding rounding = Rounding::nearest;  // of parameters of 16 bits
  std::uint64_t seed = 0;                 // of stochastic rounding
};

// It has no fused form. commit() computes as the loop does, in memory of the size of the largest
// parameter that reserve() takes, and adds the weight decay to the gradients themselves.
struct RmsPropOptions {
  double learning_rate = 1e-2;
  double alpha = 0.99;  // of the running mean of squares
  double epsilon = 1e-8;
  double weight_decay = 0;  // added to the gradient
  double momentum = 0;      // if not 0, keeps a tensor as large as the parameter
  bool centered = false;    // subtracts the squared mean gradient: one more such tensor
  OptimizerForm form = OptimizerForm::foreach;
};

// torch.optim.Adafactor: keeps a row and a column for each matrix. It has no fused form.
struct AdafactorOptions {
  double learning_rate = 1e-2;
  double beta2_decay = -0.8;
  // std::nullopt: the machine epsilon of the first parameter's type.
  std::optional<double> epsilon1 = {};
  double epsilon2 = 1e-3;
  double clip = 1;  // `d`: the largest root mean square of an update
  double weight_decay = 0;
  OptimizerForm form = OptimizerForm::loop;
};

// transformers.optimization.Adafactor: computes in float, and copies parameters and gradients of
// lower precision. It is always a loop.
struct AdafactorHfOptions {
  std::optional<double> learning_rate = {};  // std::nullopt: relative_step sets it
  double epsilon1 = 1e-30, epsilon2 = 1e-3;
  double clip_threshold = 1;
  double decay_rate = -0.8;
  std::optional<double> beta1 = {};  // std::nullopt: no first moment
  double weight_decay = 0;
  bool scale_parameter = true;
  bool relative_step = true;
  bool warmup_init = false;
};

// Parameters with options of their own. The form is the same in all groups of an optimizer, and a
// parameter is in one group only.
template <typename Options>
struct Group {
  std::vector<at::Tensor> parameters;
  Options options;
};

[[nodiscard]] std::unique_ptr<Optimizer> make_sgd(std::vector<at::Tensor> parameters,
                                                  const SgdOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_sgd(const std::vector<Group<SgdOptions>>& groups);
[[nodiscard]] std::unique_ptr<Optimizer> make_adam(std::vector<at::Tensor> parameters,
                                                   const AdamOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adam(const std::vector<Group<AdamOptions>>& groups);
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(std::vector<at::Tensor> parameters,
                                                    const AdamWOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const std::vector<Group<AdamWOptions>>& groups);
[[nodiscard]] std::unique_ptr<Optimizer> make_compact_adamw(
    std::vector<at::Tensor> parameters, const CompactAdamWOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_compact_adamw(
    const std::vector<Group<CompactAdamWOptions>>& groups);
[[nodiscard]] std::unique_ptr<Optimizer> make_rmsprop(std::vector<at::Tensor> parameters,
                                                      const RmsPropOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_rmsprop(
    const std::vector<Group<RmsPropOptions>>& groups);
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor(std::vector<at::Tensor> parameters,
                                                        const AdafactorOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor(
    const std::vector<Group<AdafactorOptions>>& groups);
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor_hf(std::vector<at::Tensor> parameters,
                                                           const AdafactorHfOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor_hf(
    const std::vector<Group<AdafactorHfOptions>>& groups);

// Makes the optimizer that the command line names. Adafactor has no fused form and runs as a loop
// instead. Hugging Face's Adafactor always runs as a loop, with the settings of their Trainer.
// `none` updates nothing. adamw8bit and adamw4bit are fused whatever the form. Throws UsageError
// for stochastic rounding unless model::can_round(kind), in the form fused.
struct Rates {
  std::optional<double> learning = {}, weight_decay = {};  // std::nullopt: the kind's default
  Rounding rounding = Rounding::nearest;
  std::uint64_t seed = 0;  // of stochastic rounding
};
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(model::Optimizer kind, OptimizerForm form,
                                                        std::vector<at::Tensor> parameters,
                                                        const Rates& rates = {});

// Has no parameters: for a card on which only frozen layers lie (train/team.h).
[[nodiscard]] std::unique_ptr<Optimizer> make_idle();

}  // namespace headroom::optim
