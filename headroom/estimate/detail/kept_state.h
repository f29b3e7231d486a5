// Saves the training state of a model while other code tries steps with it, and restores every bit
// of it afterwards.
//
//   KeptState kept(model, &optimizer, device);   // gradients and optimizer state leave the device
//   ... steps, and out-of-memory errors ...
//   kept.restore();
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <utility>
#include <vector>

#include "headroom/libtorch/random_state.h"

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
  // Restores unless restore() has run, so that an exception restores too. Swallows its own
  // exceptions.
  ~KeptState();
  KeptState(const KeptState&) = delete;
  KeptState& operator=(const KeptState&) = delete;

  void restore();

 private:
  struct Aside;

  void keep_values();

  torch::nn::Module& model_;
  c10::Device device_;
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;  // of the model, and CPU copies
  std::vector<bool> is_training_;                          // of each module
  libtorch::RandomState random_;
  std::unique_ptr<Aside> aside_;  // the gradients and the optimizer's state themselves
};

// Removes all gradients and the optimizer's state.
void forget_step(torch::nn::Module& model, torch::optim::Optimizer* optimizer);

}  // namespace headroom::estimate::detail
