#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/norm_statistics.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

using Wanted = std::array<bool, 3>;

struct BatchNorm {
  const Tensor& x;
  const Optional &weight, &bias, &running_mean, &running_var;
  bool training;
  double eps;
};

// Source: aten/src/ATen/native/Normalization.cpp, _select_batch_norm_backend. cuDNN's least epsilon
// has been 0 since its version 7.5.
bool takes_cudnn(const BatchNorm& b) {
  const ScalarType type = b.x.scalar_type();
  if (!is_defined(b.weight) || !is_defined(b.bias) || b.x.dim() < 3) return false;
  if (is_defined(b.running_mean) != is_defined(b.running_var)) return false;
  if (!is_defined(b.running_mean) && !b.training) return false;
  if (type == at::kBFloat16 || b.weight->scalar_type() == at::kBFloat16) return false;
  if (type == at::kHalf && b.weight->scalar_type() != at::kFloat) return false;
  return b.x.size(0) <= (b.training ? 880801 : 65535) &&
         b.x.numel() < std::numeric_limits<std::int32_t>::max();
}

ScalarType batch_type_on_cpu(const BatchNorm& b) {
  return statistics_type_on_cpu(b.x, {b.weight, b.bias, b.running_mean, b.running_var});
}
ScalarType batch_type(const BatchNorm& b) {
  return follows_cuda() ? accumulation_type(b.x.scalar_type()) : batch_type_on_cpu(b);
}

// In evaluation only CUDA's own kernel keeps statistics.
// Source: aten/src/ATen/native/cuda/Normalization.cu, batch_norm_cuda;
// aten/src/ATen/native/cudnn/BatchNorm.cpp; aten/src/ATen/native/Normalization.cpp.
std::int64_t batch_statistics(const BatchNorm& b) {
  return b.training || (follows_cuda() && !takes_cudnn(b)) ? b.x.size(1) : 0;
}

Three batch_norm(const BatchNorm& b) {
  const ScalarType type = batch_type(b);
  const std::int64_t kept = batch_statistics(b);
  Tensor out = like(b.x);
  Tensor mean = contiguous({kept}, b.x, type);
  Tensor rstd = contiguous({kept}, b.x, type);
  return {out, mean, rstd};
}

Three fill_batch_norm(const BatchNorm& b, double momentum) {
  auto [out, mean, rstd] = at::native_batch_norm(b.x, b.weight, b.bias, b.running_mean,
                                                 b.running_var, b.training, momentum, b.eps);
  if (mean.numel() == 0 && batch_statistics(b) > 0) {
    mean = b.running_mean->clone();
    rstd = at::rsqrt(*b.running_var + b.eps);
  }
  const ScalarType type = batch_type(b);
  return {out, as_type(mean, type), as_type(rstd, type)};
}

Three batch_norm_backward(const Tensor& gradient, const Tensor& x, const Optional& weight,
                          Wanted wanted) {
  const Tensor in_same_format = as_contiguous(gradient, x.suggest_memory_format());
  Tensor for_x = wanted[0] ? like(x) : Tensor();
  const Tensor& parameters = is_defined(weight) ? *weight : x;
  Tensor for_weight = wanted[1] ? contiguous({x.size(1)}, parameters) : Tensor();
  Tensor for_bias = wanted[2] ? contiguous({x.size(1)}, parameters) : Tensor();
  return {for_x, for_weight, for_bias};
}

Three fill_batch_norm_backward(const Tensor& gradient, const BatchNorm& b, const Optional& mean,
                               const Optional& rstd, Wanted wanted) {
  const ScalarType type = batch_type_on_cpu(b);
  return at::native_batch_norm_backward(gradient, b.x, b.weight, b.running_mean, b.running_var,
                                        as_type(or_none(mean), type), as_type(or_none(rstd), type),
                                        b.training, b.eps, wanted);
}

// `Running`: how the schema declares the running mean and variance.
template <typename Running>
void add_forward(Table& table, std::string_view name) {
  table.rule(name, [](const Tensor& x, const Optional& weight, const Optional& bias, Running mean,
                      Running var, bool training, double, double eps) {
    return batch_norm({x, weight, bias, mean, var, training, eps});
  });
  table.fill(name, [](const Tensor& x, const Optional& weight, const Optional& bias, Running mean,
                      Running var, bool training, double momentum, double eps) {
    return fill_batch_norm({x, weight, bias, mean, var, training, eps}, momentum);
  });
}

// `Reserve`: cuDNN's, in the schemas that have it.
template <typename Weight, typename... Reserve>
void add_backward(Table& table, std::string_view name) {
  table.rule(name,
             [](const Tensor& gradient, const Tensor& x, Weight weight, const Optional&,
                const Optional&, const Optional&, const Optional&, bool, double, Wanted wanted,
                Reserve...) { return batch_norm_backward(gradient, x, weight, wanted); });
  table.fill(name, [](const Tensor& gradient, const Tensor& x, Weight weight, const Optional& mean,
                      const Optional& var, const Optional& save_mean, const Optional& save_rstd,
                      bool training, double eps, Wanted wanted, Reserve...) {
    return fill_batch_norm_backward(gradient, {x, weight, {}, mean, var, training, eps}, save_mean,
                                    save_rstd, wanted);
  });
}

void add_without_running(Table& table) {
  table.rule("_native_batch_norm_legit.no_stats",
             [](const Tensor& x, const Optional& weight, const Optional& bias, bool training,
                double, double eps) {
               return batch_norm({x, weight, bias, {}, {}, training, eps});
             });
  table.fill("_native_batch_norm_legit.no_stats",
             [](const Tensor& x, const Optional& weight, const Optional& bias, bool training,
                double momentum, double eps) {
               return fill_batch_norm({x, weight, bias, {}, {}, training, eps}, momentum);
             });
}

// cuDNN's reserve is left out: its size is not published.
Four with_reserve(const Three& results) {
  const auto& [out, mean, rstd] = results;
  return {out, mean, rstd, contiguous({0}, out, at::kByte)};
}

void add_updating_batch_norm(Table& table) {
  table.rule("_batch_norm_with_update",
             [](const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
                const Tensor& var, double, double eps) {
               return with_reserve(batch_norm({x, weight, bias, mean, var, true, eps}));
             });
  table.fill("_batch_norm_with_update", [](const Tensor& x, const Optional& weight,
                                           const Optional& bias, const Tensor& mean,
                                           const Tensor& var, double momentum, double eps) {
    return with_reserve(fill_batch_norm({x, weight, bias, mean, var, true, eps}, momentum));
  });
}

// Statistics alone, to be gathered from several cards.
// Source: aten/src/ATen/native/cuda/Normalization.cu, batch_norm_update_stats_cuda;
// aten/src/ATen/native/Normalization.cpp, batch_norm_update_stats_cpu.
void add_statistics(Table& table) {
  table.rule("batch_norm_update_stats",
             [](const Tensor& x, const Optional& mean, const Optional& var, double) {
               return two_a_channel(x, statistics_type(x, {mean, var}));
             });
  table.fill("batch_norm_update_stats",
             [](const Tensor& x, const Optional& mean, const Optional& var, double momentum) {
               const auto [one, other] = at::batch_norm_update_stats(x, mean, var, momentum);
               const ScalarType type = statistics_type(x, {mean, var});
               return std::tuple(as_type(one, type), as_type(other, type));
             });
}

// Programs call it by name; at::batch_norm runs the native operator here, with cuDNN's sizes.
void add_cudnn_batch_norm(Table& table) {
  table.rule("cudnn_batch_norm",
             [](const Tensor& x, const Tensor& weight, const Optional&, const Optional&,
                const Optional&, bool training, double, double) {
               const std::int64_t kept = training ? x.size(1) : 0;
               Tensor out = like(x);
               Tensor mean = contiguous({kept}, weight);
               Tensor rstd = contiguous({kept}, weight);
               return with_reserve({out, mean, rstd});
             });
  table.fill("cudnn_batch_norm", [](const Tensor& x, const Tensor& weight, const Optional& bias,
                                    const Optional& mean, const Optional& var, bool training,
                                    double momentum, double eps) {
    return with_reserve(at::native_batch_norm(x, weight, bias, mean, var, training, momentum, eps));
  });
  table.rule("cudnn_batch_norm_backward",
             [](const Tensor& x, const Tensor& gradient, const Tensor& weight, const Optional&,
                const Optional&, const Optional&, const Optional&, double, const Tensor&) {
               return batch_norm_backward(gradient, x, weight, {true, true, true});
             });
  table.fill("cudnn_batch_norm_backward",
             [](const Tensor& x, const Tensor& gradient, const Tensor& weight, const Optional& mean,
                const Optional& var, const Optional& save_mean, const Optional& save_rstd,
                double eps, const Tensor&) {
               return fill_batch_norm_backward(gradient, {x, weight, {}, mean, var, true, eps},
                                               save_mean, save_rstd, {true, true, true});
             });
}

}  // namespace

void add_batch_norm(Table& table) {
  add_forward<const Optional&>(table, "native_batch_norm");
  add_forward<const Tensor&>(table, "_native_batch_norm_legit");  // a newer name
  add_without_running(table);
  add_updating_batch_norm(table);
  add_backward<const Optional&>(table, "native_batch_norm_backward");
  add_backward<const Tensor&, const Tensor&>(table, "batch_norm_backward");
  add_statistics(table);
  add_cudnn_batch_norm(table);
}

}  // namespace headroom::sim::rules
