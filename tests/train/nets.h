// Small nets for the tests of training steps, and all that such a step changes, as copies.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "headroom/optim/optimizer.h"
#include "headroom/train/step.h"

namespace headroom::train {

// A module, its optimizer and its step, made on a device with the same values each time.
struct Training {
  std::shared_ptr<torch::nn::Module> module;
  std::unique_ptr<optim::Optimizer> optimizer;
  Objective objective;
  std::unique_ptr<Step> step;
  std::function<Tensors(int step)> batch;  // on the host
};

// A transformer with dropout over token numbers, and a net of convolutions with batch norm and
// dropout; and a transformer of which the head alone is trained.
[[nodiscard]] Training transformer(c10::Device device, const StepOptions& options = {});
[[nodiscard]] Training transformers_head(c10::Device device, const StepOptions& options = {});
[[nodiscard]] Training convolutions(c10::Device device, const StepOptions& options = {});

// Copies on the CPU of parameters, buffers, optimizer states and the next random numbers of CPU and
// device. The generators stay as they are.
[[nodiscard]] Tensors everything(const Training& run);

// Expects the same tensors, to the bit.
void expect_same(const Tensors& ours, const Tensors& right);

}  // namespace headroom::train
