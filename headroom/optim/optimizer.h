// PyTorch's Python optimizers, operation for operation with their temporaries and lifetimes: what a
// step allocates, and when, is what Python's step allocates. C++'s torch::optim has loops of its
// own, and no other form.
// Source: torch/optim/{sgd,adam,adamw,_adafactor}.py of PyTorch 2.11, and transformers.optimization
// of 4.57.6.
//
//   const auto optimizer = optim::make_adamw(model->module().parameters());
//   loss.backward();
//   optimizer->step();
//   optimizer->zero_grad();
//
// The three forms compute the same and differ in temporaries: `loop` takes one parameter after the
// other (three of the largest at once), `foreach` all of them together (once all parameters more),
// `fused` none.
//
// One thing differs: state that Python makes between the updates of two parameters (of SGD's first
// step, and of transformers' Adafactor) is made before the first of them.
//
// Left out: more than one group of parameters, maximize, capturable, differentiable, numbers given
// as tensors, complex parameters.
//
// Threads: one optimizer, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/formula/settings.h"

namespace headroom::optim {

using formula::OptimizerForm;

// What it keeps of one parameter between steps, under PyTorch's names ("exp_avg").
using State = std::map<std::string, at::Tensor>;

// What a loss scaler gives the fused forms, which unscale and skip by themselves. Undefined: none.
struct GradientScale {
  at::Tensor scale;       // gradients are this much too large
  at::Tensor not_finite;  // not zero: a gradient is infinite or no number, nothing is done
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates the parameters that have a gradient. State is made in the first step that needs it: all
  // of it before any parameter is touched, or, where memory runs out, none of it.
  //
  // A step that threw may be called again, unless it was interrupted().
  void step();
  // Throws UsageError unless takes_scale().
  void step(const GradientScale& scale);

  // The last step threw, an out-of-memory for instance, after it had begun to change parameters or
  // states. Another one would count twice what is done already, so step() throws UsageError until
  // `restored` says that parameters and states are again what they were before (set_state).
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  void restored() { interrupted_ = false; }

  [[nodiscard]] virtual bool takes_scale() const { return false; }

  // Frees the gradients; or fills them with zeros, so that they stay where they are.
  void zero_grad(bool set_to_none = true);

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // To save and restore. The tensors are the optimizer's own, not copies; empty before the first
  // step. What is set is kept as it is, to the bit, but on the device where it belongs.
  [[nodiscard]] const State& state(std::size_t parameter) const { return states_.at(parameter); }
  void set_state(std::size_t parameter, State state);

 protected:
  // The parameters that have a gradient, in their order, with what is kept of each.
  struct Trained {
    std::vector<at::Tensor> parameters, gradients;
    std::vector<State*> states;
    std::vector<bool> is_new;  // the state: it was made in this step
  };
  Optimizer(std::vector<at::Tensor> parameters, OptimizerForm form);
  // Throws UsageError for parameters and gradients that this optimizer cannot step.
  virtual void check(const Trained&) const {}
  // What is kept of a parameter before its first update.
  [[nodiscard]] virtual State make_state(const at::Tensor& parameter,
                                         const at::Tensor& gradient) const = 0;
  virtual void update(Trained& trained, const GradientScale& scale) = 0;

  [[nodiscard]] OptimizerForm form() const { return form_; }
  // Of this name, from every state. Undefined where there is none.
  [[nodiscard]] static std::vector<at::Tensor> kept(const Trained& trained, const char* name);
  // Where the count of steps lies: the fused forms read it on the card.
  [[nodiscard]] c10::Device place_of_steps(const at::Tensor& parameter) const;

 private:
  [[nodiscard]] Trained trained();
  void make_states(Trained& trained) const;
  void run(const GradientScale& scale);
  void fill_gradients() const;

  std::vector<at::Tensor> parameters_;
  std::vector<State> states_;
  OptimizerForm form_;
  bool interrupted_ = false;
};

// ---- The kinds, with PyTorch's defaults. The form is what PyTorch takes on a GPU if none is asked
// for. Each throws UsageError for numbers that PyTorch refuses, too.

struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;  // with it: one tensor as large as the parameter is kept
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  OptimizerForm form = OptimizerForm::foreach;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool amsgrad = false;     // keeps a third tensor beside the two
  OptimizerForm form = OptimizerForm::foreach;
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;  // taken off the parameter
  bool amsgrad = false;
  OptimizerForm form = OptimizerForm::foreach;
};

// torch.optim.Adafactor: keeps a row and a column of each matrix. Has no fused form.
struct AdafactorOptions {
  double learning_rate = 1e-2;
  double beta2_decay = -0.8;
  std::optional<double> epsilon1 = {};  // nothing: what the first parameter's type can tell apart
  double epsilon2 = 1e-3;
  double clip = 1;  // `d`: the largest root mean square of an update
  double weight_decay = 0;
  OptimizerForm form = OptimizerForm::loop;
};

// transformers.optimization.Adafactor: computes in float, with copies of parameter and gradient
// where those have less precision. Is a loop.
struct AdafactorHfOptions {
  std::optional<double> learning_rate = {};  // nothing: relative_step gives it
  double epsilon1 = 1e-30, epsilon2 = 1e-3;
  double clip_threshold = 1;
  double decay_rate = -0.8;
  std::optional<double> beta1 = {};  // nothing: no first moment
  double weight_decay = 0;
  bool scale_parameter = true;
  bool relative_step = true;
  bool warmup_init = false;
};

[[nodiscard]] std::unique_ptr<Optimizer> make_sgd(std::vector<at::Tensor> parameters,
                                                  const SgdOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adam(std::vector<at::Tensor> parameters,
                                                   const AdamOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(std::vector<at::Tensor> parameters,
                                                    const AdamWOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor(std::vector<at::Tensor> parameters,
                                                        const AdafactorOptions& options = {});
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor_hf(std::vector<at::Tensor> parameters,
                                                           const AdafactorHfOptions& options = {});

// What the command line's words mean. Adafactor is a loop where its fused form is asked for, which
// does not exist, and Hugging Face's always; that one is set up as their Trainer does. `none` steps
// nothing. Throws UsageError for adamw8bit, which cannot run yet.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(
    formula::Optimizer kind, OptimizerForm form, std::vector<at::Tensor> parameters,
    std::optional<double> learning_rate = {});  // nothing: the kind's default

}  // namespace headroom::optim
