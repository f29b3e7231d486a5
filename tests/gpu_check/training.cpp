#include "tests/gpu_check/training.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "headroom/libtorch/settle.h"

namespace headroom::gpu_check {
namespace {

using at::Tensor;

constexpr std::uint64_t kSeed = 1;
constexpr double kDropped = 0.1;

// Numbers of the CPU, so that every device starts with the same.
Tensor random_on_cpu(const std::vector<std::int64_t>& sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed));
}

}  // namespace

Training::Training(c10::Device device, const TrainingSizes& sizes) : device_(device) {
  const std::int64_t width = sizes.width;
  const double spread = 1 / std::sqrt(static_cast<double>(width));
  for (std::int64_t i = 0; i < sizes.layers; ++i)
    layers_.push_back({.norm = made({width}, 1),
                       .norm_bias = made({width}, spread),
                       .qkv = made({3 * width, width}, spread),
                       .out = made({width, width}, spread),
                       .up = made({4 * width, width}, spread),
                       .down = made({width, 4 * width}, spread)});
  input_ = random_on_cpu({sizes.rows, sizes.tokens, width}, 0).to(device);
  optimizer_ = optim::make_adamw(parameters_, {.form = optim::OptimizerForm::fused});
}

Tensor Training::made(std::vector<std::int64_t> sizes, double spread) {
  const Tensor parameter =
      (random_on_cpu(sizes, 1 + parameters_.size()) * spread).to(device_).requires_grad_();
  parameters_.push_back(parameter);
  return parameter;
}

// Attention is written out: its fused kernels add gradients in an order of their own on CUDA.
Tensor Training::through(const Layer& layer, const Tensor& x) const {
  const auto normed = at::layer_norm(x, {x.size(-1)}, layer.norm, layer.norm_bias);
  const auto parts = at::linear(normed, layer.qkv).chunk(3, -1);
  const Tensor scores =
      at::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(x.size(-1)));
  const Tensor mixed = at::matmul(at::dropout(at::softmax(scores, -1), kDropped, true), parts[2]);
  const Tensor y = x + at::linear(mixed, layer.out);
  return y + at::dropout(at::linear(at::gelu(at::linear(y, layer.up)), layer.down), kDropped, true);
}

Tensor Training::loss() const {
  at::Generator generator = at::globalContext().defaultGenerator(device_);
  generator.set_current_seed(kSeed);
  Tensor x = input_;
  for (const Layer& layer : layers_) x = through(layer, x);
  return x.pow(2).mean();
}

void Training::step() {
  optimizer_->reserve();
  loss().backward();
  optimizer_->commit();
  optimizer_->zero_grad();
}

void Training::give_up() {
  libtorch::settle({device_});
  optimizer_->zero_grad();
}

std::vector<Tensor> Training::values() const {
  std::vector<Tensor> all;
  for (const Tensor& parameter : parameters_) all.push_back(parameter.detach().cpu());
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const auto& [name, tensor] : optimizer_->state(i))
      if (Tensor copy = tensor.cpu(); copy.count_nonzero().item<std::int64_t>() != 0)
        all.push_back(std::move(copy));
  return all;
}

std::vector<Tensor> Training::take_gradients() {
  std::vector<Tensor> all;
  for (const Tensor& parameter : parameters_) all.push_back(parameter.grad().cpu());
  optimizer_->zero_grad();
  return all;
}

bool equal_to_the_bit(const std::vector<Tensor>& ours, const std::vector<Tensor>& theirs) {
  if (ours.size() != theirs.size()) return false;
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (!at::equal(ours[i], theirs[i])) return false;
  return true;
}

}  // namespace headroom::gpu_check
