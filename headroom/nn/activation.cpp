#include "headroom/nn/activation.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

namespace headroom::nn {
namespace {

using at::Tensor;

// Python frees a temporary after the operation that used it, C++ at the end of the whole
// expression. So each statement runs one operation.

Tensor gelu_new(const Tensor& x) {
  const Tensor half = 0.5 * x;
  Tensor inner = at::pow(x, 3.0);
  inner = 0.044715 * inner;
  inner = x + inner;
  inner = std::sqrt(2.0 / M_PI) * inner;
  inner = at::tanh(inner);
  inner = 1.0 + inner;
  return half * inner;
}

Tensor gelu_fast(const Tensor& x) {
  const Tensor half = 0.5 * x;
  const Tensor scaled = x * 0.7978845608;
  Tensor inner = 0.044715 * x;
  inner = inner * x;
  inner = 1.0 + inner;
  inner = scaled * inner;
  inner = at::tanh(inner);
  inner = 1.0 + inner;
  return half * inner;
}

Tensor quick_gelu(const Tensor& x) {
  Tensor gate = 1.702 * x;
  gate = at::sigmoid(gate);
  return x * gate;
}

Tensor relu_squared(const Tensor& x) {
  const Tensor positive = at::relu(x);
  return at::square(positive);
}

const std::map<std::string, Activation, std::less<>>& by_name() {
  static const std::map<std::string, Activation, std::less<>> all = {
      {"gelu", [](const Tensor& x) { return at::gelu(x); }},
      {"gelu_10", [](const Tensor& x) { return at::clip(at::gelu(x), -10, 10); }},
      {"gelu_fast", gelu_fast},
      {"gelu_new", gelu_new},
      {"gelu_pytorch_tanh", [](const Tensor& x) { return at::gelu(x, "tanh"); }},
      {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x); }},
      {"linear", [](const Tensor& x) { return x; }},
      {"mish", [](const Tensor& x) { return at::mish(x); }},
      {"quick_gelu", quick_gelu},
      {"relu", [](const Tensor& x) { return at::relu(x); }},
      {"relu2", relu_squared},
      {"relu6", [](const Tensor& x) { return at::hardtanh(x, 0, 6); }},
      {"sigmoid", [](const Tensor& x) { return at::sigmoid(x); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"swish", [](const Tensor& x) { return at::silu(x); }},
      {"tanh", [](const Tensor& x) { return at::tanh(x); }}};
  return all;
}

}  // namespace

Activation activation(std::string_view name) {
  const auto found = by_name().find(name);
  return found == by_name().end() ? Activation() : found->second;
}

}  // namespace headroom::nn
