// One operator with its inputs, run forward and backward on the CPU, on a card that computes, and
// on one without data.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "headroom/sim/simulate.h"

namespace headroom::sim {

using Tensors = std::vector<at::Tensor>;
using Shapes = std::vector<std::vector<std::int64_t>>;
using Types = std::vector<at::ScalarType>;
inline const Types kWide = {at::kFloat, at::kDouble};

struct Case {
  std::string name;
  std::function<Tensors(at::TensorOptions)> inputs;  // on the CPU
  std::function<Tensors(const Tensors&)> run;
  Types types = {at::kFloat, at::kDouble, at::kBFloat16};
  bool strides_differ = false;  // CUDA's results are dense in another order than the CPU's
  bool same_bits = true;        // false: a channels last kernel of the CPU sums in another order
};

// The name that GoogleTest shows; its default, the bytes, would differ in each run.
inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

struct Outcome {
  Tensors results, gradients;
  std::uint64_t allocations = 0;
};

// The cases, by what they are for.
[[nodiscard]] std::vector<Case> nn_layers();
[[nodiscard]] std::vector<Case> nn_functions();

// The same on every device, of the inputs' values; the gradients of the results are fixed numbers.
inline Outcome outcome(const Case& c, const Tensors& inputs, c10::Device device, Card* card) {
  torch::manual_seed(7);
  if (card != nullptr) {
    at::Generator generator = card->generator();
    generator.set_current_seed(7);
  }
  Tensors leaves, all;
  for (const at::Tensor& input : inputs) {
    all.push_back(input.to(device));
    if (!input.requires_grad()) continue;
    all.back() = all.back().detach().requires_grad_();
    leaves.push_back(all.back());
  }
  const std::uint64_t before = card != nullptr ? card->requests() : 0;
  Outcome made;
  made.results = c.run(all);
  Tensors differentiable, gradients;
  for (const at::Tensor& result : made.results)
    if (result.requires_grad()) {
      differentiable.push_back(result);
      gradients.push_back(at::arange(1, result.numel() + 1, at::kFloat)
                              .remainder(7)
                              .sub(3)
                              .to(result.scalar_type())
                              .view(result.sizes())
                              .to(device));
    }
  if (!differentiable.empty())
    made.gradients = torch::autograd::grad(differentiable, leaves, gradients, {}, false, true);
  if (card != nullptr) made.allocations = card->requests() - before;
  return made;
}

inline at::Tensor normal(at::IntArrayRef sizes, at::TensorOptions options) {
  return at::randn(sizes, at::kFloat).to(options.dtype()).requires_grad_();
}
// Between 0 and 1, without the ends.
inline at::Tensor share(at::IntArrayRef sizes, at::TensorOptions options) {
  return at::rand(sizes, at::kFloat).mul(0.9).add(0.05).to(options.dtype()).requires_grad_();
}
inline at::Tensor classes(at::IntArrayRef sizes, std::int64_t count) {
  return at::randint(count, sizes, at::kLong);
}
inline at::Tensor last_channels(const at::Tensor& x) {
  const auto format = x.dim() == 4   ? at::MemoryFormat::ChannelsLast
                      : x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d
                                     : at::MemoryFormat::Contiguous;
  return x.detach().contiguous(format).requires_grad_();
}

inline std::function<Tensors(at::TensorOptions)> normals(Shapes shapes) {
  return [shapes](at::TensorOptions options) {
    Tensors all;
    for (const auto& sizes : shapes) all.push_back(normal(sizes, options));
    return all;
  };
}
inline std::function<Tensors(at::TensorOptions)> channels_last(Shapes shapes) {
  return [shapes](at::TensorOptions options) {
    Tensors all;
    for (const auto& sizes : shapes) all.push_back(last_channels(normal(sizes, options)));
    return all;
  };
}

inline Tensors both(const std::tuple<at::Tensor, at::Tensor>& two) {
  return {std::get<0>(two), std::get<1>(two)};
}
inline Tensors first_of(const std::tuple<at::Tensor, at::Tensor, at::Tensor>& three) {
  return {std::get<0>(three)};
}

}  // namespace headroom::sim
