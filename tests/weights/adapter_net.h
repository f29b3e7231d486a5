// A net of torch::nn layers of every kind that can have an adapter; tests/python/adapters_test.py
// has its twin. Weights come from formula_values.h.
#pragma once

#include <torch/torch.h>

#include "headroom/nn/lora.h"
#include "tests/peers/formula_values.h"

namespace headroom::weights {

struct AdapterNet : torch::nn::Module {
  AdapterNet() {
    table = register_module("table", torch::nn::Embedding(10, 6));
    q = register_module("q", torch::nn::Linear(6, 6));
    inner = register_module(
        "inner",
        torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::Tanh(), torch::nn::Linear(6, 4)));
    wide = register_module("wide", torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 5, 3).padding(1)));
    flat = register_module(
        "flat", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, {3, 2}).stride(2).padding(1)));
    const torch::NoGradGuard no_grad;
    for (auto& each : named_parameters())
      each.value().copy_(values(each.key(), each.value().sizes().vec()));
  }
  at::Tensor forward(const at::Tensor& tokens) {  // [rows, length]
    const at::Tensor states = inner->forward(torch::tanh(q(table(tokens))));
    return flat(wide(states.transpose(1, 2)).unsqueeze(1));
  }

  torch::nn::Embedding table{nullptr};
  torch::nn::Linear q{nullptr};
  torch::nn::Sequential inner{nullptr};
  torch::nn::Conv1d wide{nullptr};
  torch::nn::Conv2d flat{nullptr};
};

// B starts at zero, and the product with it: now every adapter changes the result.
inline void fill_adapters(const nn::Lora& lora) {
  const torch::NoGradGuard no_grad;
  for (auto [name, parameter] : lora.parameters())
    parameter.copy_(0.3 * values(name, parameter.sizes().vec()));
}

}  // namespace headroom::weights
