// The parts of torch.nn.SyncBatchNorm: a card's own statistics, the joined ones of all cards, and
// their effect on each element. Only CUDA has these kernels.
// Source: aten/src/ATen/native/cuda/Normalization.cuh, batch_norm_*_cuda_template.
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/norm_statistics.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

Four sums(const Tensor& x, const Tensor& mean, const Optional& weight, bool for_x, bool for_weight,
          bool for_bias) {
  const auto channels = [&](bool wanted, const Tensor& type) {
    return wanted ? contiguous({x.size(1)}, type) : Tensor();
  };
  const Tensor& parameters = is_defined(weight) ? *weight : mean;
  Tensor gradient = channels(for_x, mean), product = channels(for_x, mean);
  Tensor of_weight = channels(for_weight, parameters), of_bias = channels(for_bias, parameters);
  return {gradient, product, of_weight, of_bias};
}

// ---- The data, on the CPU ----

Sizes all_but_channels(const Tensor& x) {
  Sizes dims{0};
  for (std::int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// One number per channel, shaped to broadcast over x.
Tensor along(const Tensor& channels, const Tensor& x) {
  Sizes sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return channels.view(sizes);
}

Tensor centred(const Tensor& x, const Tensor& mean) {
  return x.to(mean.scalar_type()) - along(mean, x);
}

Two fill_statistics(const Tensor& x, double eps) {
  const Tensor wide = x.to(accumulation_type(x.scalar_type()));
  const Sizes dims = all_but_channels(x);
  return {wide.mean(dims), at::rsqrt(wide.var(dims, /*unbiased=*/false) + eps)};
}

void update(const Optional& running, const Tensor& now, double momentum) {
  if (is_defined(running)) running->mul_(1 - momentum).add_(now, momentum);
}

// Each row is a card's: its means, its reciprocal deviations, and its number of elements.
Two fill_joined(const Tensor& means, const Tensor& rstds, const Optional& running_mean,
                const Optional& running_var, double momentum, double eps, const Tensor& counts) {
  const ScalarType type = accumulation_type(means.scalar_type());
  const Tensor n = counts.to(type).unsqueeze(1), all = n.sum(), each = means.to(type);
  const Tensor mean = (each * n).sum(0) / all;
  const Tensor variances = rstds.to(type).pow(-2) - eps;
  const Tensor squares = ((variances + (each - mean).pow(2)) * n).sum(0);
  update(running_mean, mean, momentum);
  update(running_var, squares / (all - 1), momentum);
  return {mean, at::rsqrt(squares / all + eps)};
}

Tensor fill_normalised(const Tensor& x, const Optional& weight, const Optional& bias,
                       const Tensor& mean, const Tensor& rstd) {
  Tensor out = centred(x, mean) * along(rstd, x);
  if (is_defined(weight)) out = out * along(*weight, x);
  if (is_defined(bias)) out = out + along(*bias, x);
  return out.to(x.scalar_type());
}

Four fill_sums(const Tensor& gradient, const Tensor& x, const Tensor& mean, const Tensor& rstd,
               const Optional& weight, bool for_x, bool for_weight, bool for_bias) {
  const Tensor wide = gradient.to(mean.scalar_type());
  const Sizes dims = all_but_channels(x);
  const Tensor sum = wide.sum(dims), product = (wide * centred(x, mean)).sum(dims);
  const ScalarType type = is_defined(weight) ? weight->scalar_type() : mean.scalar_type();
  return {for_x ? sum : Tensor(), for_x ? product : Tensor(),
          for_weight ? (product * rstd).to(type) : Tensor(), for_bias ? sum.to(type) : Tensor()};
}

Tensor fill_elements_backward(const Tensor& gradient, const Tensor& x, const Tensor& mean,
                              const Tensor& rstd, const Optional& weight, const Tensor& sum,
                              const Tensor& product, const Tensor& count) {
  const Tensor all = count.sum().to(mean.scalar_type());
  Tensor scale = rstd;
  if (is_defined(weight)) scale = scale * *weight;
  const Tensor slope = product / all * rstd * rstd;
  const Tensor wide =
      gradient.to(mean.scalar_type()) - along(sum / all, x) - centred(x, mean) * along(slope, x);
  return (wide * along(scale, x)).to(x.scalar_type());
}

}  // namespace

void add_sync_batch_norm(Table& table) {
  table.rule("batch_norm_stats", [](const Tensor& x, double) {
    return two_a_channel(x, accumulation_type(x.scalar_type()));
  });
  table.fill("batch_norm_stats", fill_statistics);
  table.rule("batch_norm_gather_stats_with_counts",
             [](const Tensor& x, const Tensor& mean, const Tensor&, const Optional&,
                const Optional&, double, double,
                const Tensor&) { return two_a_channel(x, accumulation_type(mean.scalar_type())); });
  table.fill("batch_norm_gather_stats_with_counts",
             [](const Tensor&, const Tensor& mean, const Tensor& rstd, const Optional& running_mean,
                const Optional& running_var, double momentum, double eps, const Tensor& counts) {
               return fill_joined(mean, rstd, running_mean, running_var, momentum, eps, counts);
             });
  table.like(0, {"batch_norm_elemt"});
  table.fill("batch_norm_elemt", [](const Tensor& x, const Optional& weight, const Optional& bias,
                                    const Tensor& mean, const Tensor& rstd, double) {
    return fill_normalised(x, weight, bias, mean, rstd);
  });
  table.rule("batch_norm_backward_reduce",
             [](const Tensor&, const Tensor& x, const Tensor& mean, const Tensor&,
                const Optional& weight, bool for_x, bool for_weight,
                bool for_bias) { return sums(x, mean, weight, for_x, for_weight, for_bias); });
  table.fill("batch_norm_backward_reduce", fill_sums);
  table.like(1, {"batch_norm_backward_elemt"});
  table.fill("batch_norm_backward_elemt", fill_elements_backward);
}

}  // namespace headroom::sim::rules
