#include "tests/nets/optimizers.h"

#include <cmath>
#include <stdexcept>

namespace headroom::nets {
namespace {

constexpr double kRate = 1e-3;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8, kDecay = 1e-2;

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, double momentum)
      : Optimizer(std::move(parameters)), momentum_(momentum) {}

  void step() override {
    const torch::NoGradGuard no_grad;
    const std::vector<Tensor> parameters = trained();
    buffers_.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Tensor gradient = parameters[i].grad();
      if (momentum_ != 0) gradient = with_momentum(buffers_[i], gradient);
      parameters[i].add_(gradient, -kRate);
    }
  }

 private:
  Tensor with_momentum(Tensor& buffer, const Tensor& gradient) const {
    if (buffer.defined())
      buffer.mul_(momentum_).add_(gradient, 1);
    else
      buffer = gradient.detach().clone();
    return buffer;
  }

  const double momentum_;
  std::vector<Tensor> buffers_;
};

// The state of all three kinds of AdamW; what differs is the update.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<Tensor> parameters, bool steps_on_device)
      : Optimizer(std::move(parameters)), steps_on_device_(steps_on_device) {}

  void step() override {
    const torch::NoGradGuard no_grad;
    now_ = trained();
    gradients_.clear();
    for (const Tensor& parameter : now_) gradients_.push_back(parameter.grad());
    if (means_.empty()) make_state();
    update();
    gradients_.clear();
  }

 protected:
  virtual void update() = 0;
  [[nodiscard]] double step_size(const Tensor& step) const {
    return kRate / (1 - std::pow(kBeta1, step.item<double>()));
  }
  [[nodiscard]] double root_of_correction(const Tensor& step) const {
    return std::pow(1 - std::pow(kBeta2, step.item<double>()), 0.5);
  }

  std::vector<Tensor> now_, gradients_, means_, squares_, steps_;

 private:
  void make_state() {
    for (const Tensor& parameter : now_) {
      const auto device = steps_on_device_ ? parameter.device() : c10::Device(c10::kCPU);
      steps_.push_back(torch::zeros({}, torch::device(device).dtype(torch::kFloat)));
      means_.push_back(torch::zeros_like(parameter));
      squares_.push_back(torch::zeros_like(parameter));
    }
  }

  const bool steps_on_device_;
};

class AdamWLoop : public AdamW {
 public:
  explicit AdamWLoop(std::vector<Tensor> parameters) : AdamW(std::move(parameters), false) {}

  void update() override {
    Tensor divisor;  // as Python's variable, alive until the next parameter's replaces it
    for (std::size_t i = 0; i < now_.size(); ++i) {
      steps_[i] += 1;
      now_[i].mul_(1 - kRate * kDecay);
      means_[i].lerp_(gradients_[i], 1 - kBeta1);
      squares_[i].mul_(kBeta2).addcmul_(gradients_[i], gradients_[i], 1 - kBeta2);
      Tensor scaled = squares_[i].sqrt() / root_of_correction(steps_[i]);
      divisor = scaled.add_(kEpsilon);
      now_[i].addcdiv_(means_[i], divisor, -step_size(steps_[i]));
    }
  }
};

class AdamWForeach : public AdamW {
 public:
  explicit AdamWForeach(std::vector<Tensor> parameters) : AdamW(std::move(parameters), false) {}

  void update() override {
    for (const Tensor& step : steps_) step.add_(1);
    torch::_foreach_mul_(now_, 1 - kRate * kDecay);
    torch::_foreach_lerp_(means_, gradients_, 1 - kBeta1);
    torch::_foreach_mul_(squares_, kBeta2);
    torch::_foreach_addcmul_(squares_, gradients_, gradients_, 1 - kBeta2);
    std::vector<torch::Scalar> sizes, roots;
    for (const Tensor& step : steps_) {
      sizes.emplace_back(-step_size(step));
      roots.emplace_back(root_of_correction(step));
    }
    const std::vector<Tensor> divisors = torch::_foreach_sqrt(squares_);
    torch::_foreach_div_(divisors, roots);
    torch::_foreach_add_(divisors, kEpsilon);
    torch::_foreach_addcdiv_(now_, means_, divisors, sizes);
  }
};

class AdamWFused : public AdamW {
 public:
  explicit AdamWFused(std::vector<Tensor> parameters) : AdamW(std::move(parameters), true) {}

  void update() override {
    torch::_foreach_add_(steps_, 1);
    torch::_fused_adamw_(now_, gradients_, means_, squares_, {}, steps_, kRate, kBeta1, kBeta2,
                         kDecay, kEpsilon, false, false);
  }
};

}  // namespace

void Optimizer::zero_grad() {
  for (Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

std::vector<Tensor> Optimizer::trained() const {
  std::vector<Tensor> with_gradient;
  for (const Tensor& parameter : parameters_)
    if (parameter.grad().defined()) with_gradient.push_back(parameter);
  return with_gradient;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& kind, std::vector<Tensor> parameters) {
  if (kind == "sgd") return std::make_unique<Sgd>(std::move(parameters), 0);
  if (kind == "sgd_momentum") return std::make_unique<Sgd>(std::move(parameters), 0.9);
  if (kind == "adamw_loop") return std::make_unique<AdamWLoop>(std::move(parameters));
  if (kind == "adamw_foreach") return std::make_unique<AdamWForeach>(std::move(parameters));
  if (kind == "adamw_fused") return std::make_unique<AdamWFused>(std::move(parameters));
  throw std::invalid_argument("no optimizer '" + kind + "'");
}

}  // namespace headroom::nets
