// A quantised model beside the same one with its unpacked weights.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "headroom/libtorch/stored_weight.h"
#include "headroom/nn/lora.h"

namespace headroom::nn {

// How often an operator got a whole weight so far.
inline std::int64_t whole_weights() {
  std::int64_t all = 0;
  for (const auto& [name, count] : libtorch::whole_weights()) all += count;
  return all;
}

// The same module with the unpacked weights.
inline void unpack(torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters())
    if (const auto store = libtorch::store_of(parameter)) {
      const torch::Tensor whole = store->whole(parameter.scalar_type());
      parameter.set_data(whole);
    }
}

// Casts floating-point parameters and buffers; Module::to would cast all.
inline void to_type(torch::nn::Module& module, at::ScalarType type) {
  std::vector<torch::Tensor> all = module.parameters();
  for (const torch::Tensor& buffer : module.buffers()) all.push_back(buffer);
  for (torch::Tensor& tensor : all)
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(type));
}

// Adapters whose values count from the first step on.
inline Lora add_adapters(torch::nn::Module& module) {
  Lora lora = add_lora(module, {.rank = 2, .targets = {"all-linear"}});
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  for (auto [name, parameter] : lora.parameters())
    parameter.copy_(torch::randn(parameter.sizes()) * 0.1);
  return lora;
}

inline double distance(const std::vector<torch::Tensor>& one,
                       const std::vector<torch::Tensor>& other) {
  EXPECT_EQ(one.size(), other.size());
  double worst = 0;
  for (std::size_t i = 0; i < one.size() && i < other.size(); ++i) {
    EXPECT_EQ(one[i].defined(), other[i].defined());
    if (!one[i].defined() || !other[i].defined()) continue;
    const double size = other[i].norm().item<double>();
    worst = std::max(worst,
                     (one[i].cpu() - other[i].cpu()).norm().item<double>() / std::max(size, 1e-30));
  }
  return worst;
}

}  // namespace headroom::nn
