#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

using Generator = std::optional<at::Generator>;

// Without replacement the weights are divided by noise, and the largest quotients win, kept with
// their places. With replacement CUDA keeps the normalised weights and their running sums; the CPU
// sums one row at a time. Source: aten/src/ATen/native/Distributions.cpp, multinomial_out;
// cuda/MultinomialKernel.cu and cpu/MultinomialKernel.cpp, multinomial_with_replacement_kernel_impl
// (checked against the calls of 2.11.0's libraries).
Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement,
                   const Generator&) {
  Sizes sizes = weights.sizes().vec();
  if (sizes.empty()) sizes.push_back(0);
  sizes.back() = samples;
  Tensor drawn = contiguous(sizes, weights, at::kLong);
  if (!replacement || samples == 1) {
    const Tensor noise = like(weights);
    const Tensor largest = samples == 1 ? Tensor() : contiguous(sizes, weights);
  } else if (follows_cuda()) {
    const Tensor kept = like(weights), normalised = like(weights), sums = like(weights);
  } else {
    const Tensor sums = contiguous({weights.dim() == 0 ? 1 : weights.size(-1)}, weights);
  }
  return drawn;
}

Tensor resized(const Tensor& out, std::int64_t elements) {
  if (out.dim() != 1 || out.size(0) != elements) out.resize_({elements});
  return out;
}

}  // namespace

void add_random(Table& table) {
  for (const char* name : {"poisson", "_standard_gamma", "_sample_dirichlet"})
    table.rule(name, [](const Tensor& x, const Generator&) { return contiguous(x.sizes(), x); });
  table.rule("binomial", [](const Tensor& count, const Tensor&, const Generator&) {
    return contiguous(count.sizes(), count);
  });
  table.rule("_standard_gamma_grad", [](const Tensor& a, const Tensor& b) {
    return elementwise({a, b});
  });
  table.rule("_dirichlet_grad", [](const Tensor& x, const Tensor& alpha, const Tensor& total) {
    return elementwise({x, alpha, total});
  });
  table.rule("multinomial", multinomial);
  table.differs(
      "multinomial",
      [](const Tensor&, std::int64_t, bool, const Generator&) { return std::int64_t{0}; },
      "the result is the same; on the way CUDA keeps the weights twice and their running sums, the "
      "CPU those of one row",
      "aten/src/ATen/native/cuda/MultinomialKernel.cu, aten/src/ATen/native/cpu/"
      "MultinomialKernel.cpp");
  table.rule("randperm.generator_out",
             [](std::int64_t n, const Generator&, const Tensor& out) { return resized(out, n); });
}

}  // namespace headroom::sim::rules
