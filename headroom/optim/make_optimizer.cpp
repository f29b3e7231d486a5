// Optimizers by the names of the command line.
#include <utility>

#include "headroom/base/error.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

class Nothing : public Optimizer {
 public:
  explicit Nothing(const std::vector<at::Tensor>& parameters)
      : Optimizer({{parameters, 0}}, OptimizerForm::loop) {}
  [[nodiscard]] bool can_commit() const override { return true; }

 private:
  [[nodiscard]] State make_state(std::size_t, const at::Tensor&, const at::Tensor&) const override {
    return {};
  }
  void update(std::size_t, Trained&, const GradientScale&) override {}
};

// The settings of Hugging Face's Trainer with the caller's learning rate. Source: transformers
// 4.57.6, trainer.py, OptimizerNames.ADAFACTOR.
AdafactorHfOptions trainers_adafactor(const Rates& rates) {
  AdafactorHfOptions options;
  options.learning_rate = rates.learning.value_or(1e-3);
  if (rates.weight_decay) options.weight_decay = *rates.weight_decay;
  options.scale_parameter = false;
  options.relative_step = false;
  return options;
}

template <typename Options>
Options with(OptimizerForm form, const Rates& rates) {
  Options options;
  options.form = form;
  if (rates.learning) options.learning_rate = *rates.learning;
  if (rates.weight_decay) options.weight_decay = *rates.weight_decay;
  return options;
}

template <typename Options>
Options with_rounding(OptimizerForm form, const Rates& rates) {
  Options options = with<Options>(form, rates);
  options.rounding = rates.rounding;
  options.seed = rates.seed;
  return options;
}

CompactAdamWOptions in_bits(int bits, const Rates& rates) {
  CompactAdamWOptions options{.bits = bits, .rounding = rates.rounding, .seed = rates.seed};
  if (rates.learning) options.learning_rate = *rates.learning;
  if (rates.weight_decay) options.weight_decay = *rates.weight_decay;
  return options;
}

SgdOptions with_momentum(SgdOptions options) {
  options.momentum = 0.9;
  return options;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(model::Optimizer kind, OptimizerForm form,
                                          std::vector<at::Tensor> parameters, const Rates& rates) {
  if (rates.rounding == Rounding::stochastic && !model::can_round(kind))
    throw UsageError(expectation("make_optimizer", "an optimizer that rounds stochastically",
                                 std::string(to_string(kind)),
                                 "adamw, adamw8bit, adamw4bit, sgd or sgd-momentum"));
  switch (kind) {
    case model::Optimizer::adamw:
      return make_adamw(std::move(parameters), with_rounding<AdamWOptions>(form, rates));
    case model::Optimizer::adam:
      return make_adam(std::move(parameters), with<AdamOptions>(form, rates));
    case model::Optimizer::sgd:
      return make_sgd(std::move(parameters), with_rounding<SgdOptions>(form, rates));
    case model::Optimizer::sgd_momentum:
      return make_sgd(std::move(parameters), with_momentum(with_rounding<SgdOptions>(form, rates)));
    case model::Optimizer::adafactor:
      if (form == OptimizerForm::fused) form = OptimizerForm::loop;
      return make_adafactor(std::move(parameters), with<AdafactorOptions>(form, rates));
    case model::Optimizer::adafactor_hf:
      return make_adafactor_hf(std::move(parameters), trainers_adafactor(rates));
    case model::Optimizer::none:
      return std::make_unique<Nothing>(std::move(parameters));
    case model::Optimizer::adamw8bit:
      return make_compact_adamw(std::move(parameters), in_bits(8, rates));
    case model::Optimizer::adamw4bit:
      return make_compact_adamw(std::move(parameters), in_bits(4, rates));
  }
  throw InternalError("make_optimizer", "unknown optimizer");
}

}  // namespace headroom::optim
