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
  table.contiguous_as(0, {"_philox_key_fold_in", "_philox_key_fold_in.Tensor"});
  table.rule("_philox_key_split", [](const Tensor& key, std::int64_t count) {
    Sizes sizes = key.sizes().vec();
    sizes.insert(sizes.begin(), count);
    return contiguous(sizes, key);
  });
  table.contiguous_as(0, {"poisson", "binomial", "_standard_gamma", "_sample_dirichlet"});
  table.elementwise({"_standard_gamma_grad", "_dirichlet_grad"});
  table.rule("multinomial", multinomial);
  table.rule("randperm.generator_out",
             [](std::int64_t n, const Generator&, const Tensor& out) { return resized(out, n); });
}

}  // namespace headroom::sim::rules
