#include "headroom/estimate/detail/kept_state.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <string>

#include "headroom/libtorch/modules.h"

namespace headroom::estimate::detail {
namespace {

using at::Tensor;
using torch::nn::Module;
using torch::optim::Optimizer;

// A module that holds the tensors as buffers, so that libtorch::move moves them in place together.
class Tensors : public Module {
 public:
  void add(const Tensor& tensor) { register_buffer(std::to_string(buffers(false).size()), tensor); }
};

Tensor on_cpu(const Tensor& tensor) {
  return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

// Moves the gradients and the optimizer's state off the device in place: other holders of these
// tensors keep the same tensors.
struct KeptState::Aside {
  Aside(Module& model, Optimizer* its_optimizer) : optimizer(its_optimizer) {
    for (const Tensor& parameter : model.parameters())
      if (parameter.grad().defined()) {
        of.emplace_back(parameter, parameter.grad());
        gradients.add(parameter.grad());
      }
    if (optimizer == nullptr) {
      libtorch::move(gradients, at::kCPU);
    } else {
      libtorch::move(gradients, *optimizer, at::kCPU);  // moves both or neither
      state = std::move(optimizer->state());
    }
  }

  // Reattaches everything before the move: if the device is full by then, nothing is lost.
  void put_back(c10::Device device) {
    for (auto& [parameter, gradient] : of) parameter.mutable_grad() = gradient;
    if (optimizer != nullptr) optimizer->state() = std::move(state);
    libtorch::move(gradients, device);
    if (optimizer != nullptr) libtorch::move(*optimizer, device);
  }

  std::vector<std::pair<Tensor, Tensor>> of;  // parameter and gradient
  Tensors gradients;
  Optimizer* optimizer;
  std::decay_t<decltype(std::declval<Optimizer&>().state())> state;
};

KeptState::KeptState(Module& model, Optimizer* optimizer, c10::Device device)
    : model_(model), device_(device), random_({device}) {
  keep_values();
  for (const auto& module : model_.modules()) is_training_.push_back(module->is_training());
  aside_ = std::make_unique<Aside>(model_, optimizer);
  forget_step(model_, optimizer);
}

KeptState::~KeptState() {
  try {
    restore();
  } catch (...) {  // NOLINT(bugprone-empty-catch): another exception may be in flight
  }
}

void KeptState::keep_values() {
  for (const Tensor& tensor : model_.parameters()) values_.emplace_back(tensor, on_cpu(tensor));
  for (const Tensor& tensor : model_.buffers()) values_.emplace_back(tensor, on_cpu(tensor));
}

void KeptState::restore() {
  if (aside_ == nullptr) return;
  const std::unique_ptr<Aside> aside = std::move(aside_);
  forget_step(model_, aside->optimizer);
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, value] : values_) Tensor(tensor).copy_(value);
  // train() also sets the mode of all children; they come later in modules() and get their own
  // mode.
  std::size_t index = 0;
  for (const auto& module : model_.modules()) module->train(is_training_[index++]);
  random_.restore();
  aside->put_back(device_);
}

void forget_step(Module& model, Optimizer* optimizer) {
  for (const Tensor& parameter : model.parameters()) Tensor(parameter).mutable_grad() = Tensor();
  if (optimizer != nullptr) optimizer->state().clear();
}

}  // namespace headroom::estimate::detail
