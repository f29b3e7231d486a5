#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {
namespace {

using Generator = std::optional<at::Generator>;

// Without replacement noise divides the weights, and the largest quotients win. With it CUDA keeps
// the weights, normalised, and their running sums.
// Source: aten/src/ATen/native/Distributions.cpp, multinomial_out; cuda/MultinomialKernel.cu.
Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement,
                   const Generator&) {
  Sizes sizes = weights.sizes().vec();
  if (sizes.empty()) sizes.push_back(0);
  sizes.back() = samples;
  Tensor drawn = contiguous(sizes, weights, at::kLong);
  Tensor noise, kept, sums;
  if (!replacement || samples == 1) {
    noise = like(weights);
  } else if (follows_cuda()) {
    noise = like(weights);
    kept = like(weights);
    sums = like(weights);
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
      [](const Tensor& weights, std::int64_t samples, bool replacement, const Generator&) {
        return replacement && samples != 1 ? 3 * static_cast<std::int64_t>(weights.nbytes()) : 0;
      },
      "CUDA keeps the weights twice and their running sums for as long as it runs",
      "aten/src/ATen/native/cuda/MultinomialKernel.cu");
  table.rule("randperm.generator_out",
             [](std::int64_t n, const Generator&, const Tensor& out) { return resized(out, n); });
}

}  // namespace headroom::sim::rules
