// Small trainings whose loss touches more than one module and its rows: what people train beside a
// classifier. Each has one or two steps, which run in turns.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headroom/optim/optimizer.h"
#include "headroom/train/step.h"

namespace headroom::train {

struct Animal {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;  // all, also those of no step
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<torch::Tensor> others;  // counters and the like
  std::vector<Tensors> batches;       // of each round

  // Copies on the CPU of all that training changes, and the next random numbers.
  [[nodiscard]] Tensors everything() const;
};

struct Species {
  const char* name;
  Animal (*make)(c10::Device device, const StepOptions& options);
};
[[nodiscard]] const std::vector<Species>& zoo();
[[nodiscard]] const std::vector<Species>& zoo_of_models();

}  // namespace headroom::train
