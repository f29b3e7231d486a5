// What a training consists of, set aside while something is tried with its model: afterwards
// everything is, to the bit, what it was.
//
//   KeptState kept(model, &optimizer, device);   // gradients and optimizer's state leave the
//   device
//   ... steps, and out-of-memories ...
//   kept.restore();
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace headroom::estimate::detail {

class KeptState {
 public:
  // The optimizer may be null. Throws UsageError for tensors that cannot be moved.
  KeptState(torch::nn::Module& model, torch::optim::Optimizer* optimizer, c10::Device device);
  // Restores, if that was not done: after an exception. What it throws then is lost.
  ~KeptState();
  KeptState(const KeptState&) = delete;
  KeptState& operator=(const KeptState&) = delete;

  void restore();

 private:
  struct Aside;

  void keep_values();
  void keep_random_states();

  torch::nn::Module& model_;
  c10::Device device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;  // of the model, and on the CPU
  std::vector<bool> is_training_;                          // of each module
  std::vector<std::pair<at::Generator, at::Tensor>> random_;
  std::unique_ptr<Aside> aside_;  // gradients and optimizer's state, themselves
};

// No gradients, and no state in the optimizer.
void forget_step(torch::nn::Module& model, torch::optim::Optimizer* optimizer);

}  // namespace headroom::estimate::detail
