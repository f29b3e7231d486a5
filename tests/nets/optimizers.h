// Python's torch.optim, operation for operation with its temporaries, over ATen: what PyTorch users
// run, where C++'s torch::optim has loops of its own.
// Source: torch/optim/sgd.py and torch/optim/adam.py of PyTorch 2.11.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

namespace headroom::nets {

using torch::Tensor;

class Optimizer {
 public:
  explicit Optimizer(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {}
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;
  virtual void step() = 0;
  // Frees the gradients.
  void zero_grad();

 protected:
  // Those of the parameters that have a gradient, in the parameters' order.
  [[nodiscard]] std::vector<Tensor> trained() const;

 private:
  std::vector<Tensor> parameters_;
};

// "sgd", "sgd_momentum", "adamw_loop", "adamw_foreach", "adamw_fused"; the learning rate is 1e-3.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const std::string& kind,
                                                        std::vector<Tensor> parameters);

}  // namespace headroom::nets
