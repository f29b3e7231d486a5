#include "trial.h"

#include <ATen/CPUGeneratorImpl.h>

namespace headroom::coverage {

Trial::Trial(const Setting& setting)
    : setting_(setting), generator_(at::detail::createCPUGenerator(2026)) {}

// ---- Inputs ----

Tensor Trial::x(IntArrayRef sizes) {
  return leaf(at::randn(sizes, generator_));
}

Tensor Trial::share(IntArrayRef sizes) {
  return leaf(at::rand(sizes, generator_) * 0.9 + 0.05);
}

Tensor Trial::inner(IntArrayRef sizes) {
  return x(sizes) * 1.5;
}

Tensor Trial::constant(IntArrayRef sizes) {
  return ready(at::randn(sizes, generator_));
}

Tensor Trial::positive(IntArrayRef sizes) {
  return ready(at::rand(sizes, generator_) + 0.5);
}

Tensor Trial::signs(IntArrayRef sizes) {
  return ready(at::randint(0, 2, sizes, generator_).to(at::kFloat) * 2 - 1);
}

Tensor Trial::below(std::int64_t limit, IntArrayRef sizes) {
  return put(at::randint(0, limit, sizes, generator_, at::kLong));
}

Tensor Trial::put(const Tensor& host) const {
  return host.to(device());
}

Tensor Trial::leaf(const Tensor& host) {
  return keep(ready(host));
}

Tensor Trial::keep(Tensor tensor) {
  inputs_.push_back(tensor.requires_grad_());
  return tensor;
}

Tensor Trial::ready(const Tensor& host) {
  const bool image = host.dim() == 4 || host.dim() == 5;
  saw_images_ = saw_images_ || image;
  Tensor tensor = host.to(type());
  if (image && setting_.channels_last)
    tensor = tensor.contiguous(host.dim() == 4 ? at::MemoryFormat::ChannelsLast
                                               : at::MemoryFormat::ChannelsLast3d);
  return put(tensor);
}

// ---- Modules ----

void Trial::keep(torch::nn::Module& module) {
  if (type() != c10::kFloat) module.to(type());
  for (const auto& item : module.named_parameters())
    parameters_.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) buffers_.push_back({item.key(), item.value()});
}

// ---- Backward ----

Tensor Trial::cotangent(const Tensor& output) {
  if (setting_.expanded_cotangent)
    return at::ones({}, output.options().requires_grad(false)).expand(output.sizes());
  return put(at::randn(output.sizes(), generator_).to(output.scalar_type()));
}

void Trial::backward(const Outputs& outputs) {
  std::vector<Tensor> roots;
  std::vector<Tensor> cotangents;
  for (const Tensor& output : outputs.tensors()) {
    if (!output.defined() || output.grad_fn() == nullptr) continue;
    roots.push_back(output);
    cotangents.push_back(cotangent(output));
  }
  if (!roots.empty()) torch::autograd::backward(roots, cotangents);
}

std::vector<Trial::Named> Trial::kept() const {
  std::vector<Named> all;
  std::size_t number = 0;
  for (const Tensor& input : inputs_) {
    const std::string name = "input " + std::to_string(number++);
    all.push_back({name, input});
    all.push_back({"gradient of " + name, input.grad()});
  }
  for (const auto& [name, parameter] : parameters_) {
    all.push_back({name, parameter});
    all.push_back({"gradient of " + name, parameter.grad()});
  }
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  return all;
}

}  // namespace headroom::coverage
