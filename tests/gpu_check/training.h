// A small transformer and its training step, as a transaction: reserve, forward, backward, commit.
// It starts with the same values each time, and all its kernels are deterministic, on CUDA too: the
// results of two runs are equal to the bit.
//
//   Training training(device);
//   training.step();                       // throws if memory runs out; training is unchanged then
//   training.give_up();                    // drops what a step that threw has left
//   training.values();                     // parameters and optimizer states, in host memory
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/optim/optimizer.h"

namespace headroom::gpu_check {

struct TrainingSizes {
  std::int64_t layers = 2, width = 256, rows = 4, tokens = 64;
};

class Training {
 public:
  explicit Training(c10::Device device, const TrainingSizes& sizes = {});

  // The forward pass, with dropout that drops the same elements each time.
  [[nodiscard]] at::Tensor loss() const;
  void step();
  void give_up();

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // Copies in host memory: the parameters, then the states that are not zero.
  [[nodiscard]] std::vector<at::Tensor> values() const;
  // Copies in host memory of the gradients, which are freed.
  [[nodiscard]] std::vector<at::Tensor> take_gradients();

 private:
  struct Layer {
    at::Tensor norm, norm_bias, qkv, out, up, down;
  };
  at::Tensor made(std::vector<std::int64_t> sizes, double spread);
  [[nodiscard]] at::Tensor through(const Layer& layer, const at::Tensor& x) const;

  const c10::Device device_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> parameters_;
  at::Tensor input_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

[[nodiscard]] bool equal_to_the_bit(const std::vector<at::Tensor>& ours,
                                    const std::vector<at::Tensor>& theirs);

}  // namespace headroom::gpu_check
