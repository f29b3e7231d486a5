#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"
#include "headroom/sim/rules/statistics.h"

namespace headroom::sim::rules {
namespace {

using Optional = OptionalTensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;
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

std::int64_t batch_norm_difference(const BatchNorm& b) {
  if (b.training) return 2 * more_statistics(b.x, batch_type_on_cpu(b), b.x.size(1));
  const auto bytes =
      static_cast<std::int64_t>(c10::elementSize(accumulation_type(b.x.scalar_type())));
  return takes_cudnn(b) ? 0 : 2 * bytes * b.x.size(1);
}

// Into out= tensors of given types.
std::int64_t given_difference(const BatchNorm& b, const Tensor& mean, const Tensor& rstd) {
  if (b.training || takes_cudnn(b)) return 0;
  return b.x.size(1) * static_cast<std::int64_t>(mean.element_size() + rstd.element_size());
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

constexpr const char* kSource =
    "aten/src/ATen/native/cuda/Normalization.cu, batch_norm_cuda; "
    "aten/src/ATen/native/cudnn/BatchNorm.cpp; aten/src/ATen/native/Normalization.cpp";
constexpr const char* kWords =
    "CUDA keeps the statistics in float, and without cuDNN in evaluation, too";

void add_native_batch_norm(Table& table) {
  table.rule("native_batch_norm",
             [](const Tensor& x, const Optional& weight, const Optional& bias, const Optional& mean,
                const Optional& var, bool training, double, double eps) {
               return batch_norm({x, weight, bias, mean, var, training, eps});
             });
  table.fill("native_batch_norm",
             [](const Tensor& x, const Optional& weight, const Optional& bias, const Optional& mean,
                const Optional& var, bool training, double momentum, double eps) {
               return fill_batch_norm({x, weight, bias, mean, var, training, eps}, momentum);
             });
  table.differs(
      "native_batch_norm",
      [](const Tensor& x, const Optional& weight, const Optional& bias, const Optional& mean,
         const Optional& var, bool training, double, double eps) {
        return batch_norm_difference({x, weight, bias, mean, var, training, eps});
      },
      kWords, kSource);
  table.differs(
      "native_batch_norm.out",
      [](const Tensor& x, const Optional& weight, const Optional& bias, const Optional& mean,
         const Optional& var, bool training, double, double eps, const Tensor&,
         const Tensor& save_mean, const Tensor& save_rstd) {
        return given_difference({x, weight, bias, mean, var, training, eps}, save_mean, save_rstd);
      },
      kWords, kSource);
  table.rule("native_batch_norm_backward",
             [](const Tensor& gradient, const Tensor& x, const Optional& weight, const Optional&,
                const Optional&, const Optional&, const Optional&, bool, double,
                Wanted wanted) { return batch_norm_backward(gradient, x, weight, wanted); });
  table.fill("native_batch_norm_backward",
             [](const Tensor& gradient, const Tensor& x, const Optional& weight,
                const Optional& mean, const Optional& var, const Optional& save_mean,
                const Optional& save_rstd, bool training, double eps, Wanted wanted) {
               return fill_batch_norm_backward(gradient, {x, weight, {}, mean, var, training, eps},
                                               save_mean, save_rstd, wanted);
             });
}

// The newer names for the same kernels.
void add_legit_batch_norm(Table& table) {
  table.rule("_native_batch_norm_legit",
             [](const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
                const Tensor& var, bool training, double, double eps) {
               return batch_norm({x, weight, bias, mean, var, training, eps});
             });
  table.fill("_native_batch_norm_legit",
             [](const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
                const Tensor& var, bool training, double momentum, double eps) {
               return fill_batch_norm({x, weight, bias, mean, var, training, eps}, momentum);
             });
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
  table.differs(
      "_native_batch_norm_legit",
      [](const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
         const Tensor& var, bool training, double, double eps) {
        return batch_norm_difference({x, weight, bias, mean, var, training, eps});
      },
      kWords, kSource);
  table.differs(
      "_native_batch_norm_legit.out",
      [](const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
         const Tensor& var, bool training, double, double eps, const Tensor&,
         const Tensor& save_mean, const Tensor& save_rstd) {
        return given_difference({x, weight, bias, mean, var, training, eps}, save_mean, save_rstd);
      },
      kWords, kSource);
  table.differs(
      "_native_batch_norm_legit.no_stats",
      [](const Tensor& x, const Optional& weight, const Optional& bias, bool training, double,
         double eps) {
        return batch_norm_difference({x, weight, bias, {}, {}, training, eps});
      },
      kWords, kSource);
}

using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

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
  table.differs(
      "_batch_norm_with_update",
      [](const Tensor& x, const Optional& weight, const Optional& bias, const Tensor& mean,
         const Tensor& var, double, double eps) {
        return batch_norm_difference({x, weight, bias, mean, var, true, eps});
      },
      kWords, kSource);
  table.rule("batch_norm_backward",
             [](const Tensor& gradient, const Tensor& x, const Tensor& weight, const Optional&,
                const Optional&, const Optional&, const Optional&, bool, double, Wanted wanted,
                const Tensor&) { return batch_norm_backward(gradient, x, weight, wanted); });
  table.fill("batch_norm_backward",
             [](const Tensor& gradient, const Tensor& x, const Tensor& weight, const Optional& mean,
                const Optional& var, const Optional& save_mean, const Optional& save_rstd,
                bool training, double eps, Wanted wanted, const Tensor&) {
               return fill_batch_norm_backward(gradient, {x, weight, {}, mean, var, training, eps},
                                               save_mean, save_rstd, wanted);
             });
}

// Statistics alone, to be gathered from several cards.
// Source: aten/src/ATen/native/cuda/Normalization.cu, batch_norm_update_stats_cuda;
// aten/src/ATen/native/Normalization.cpp, batch_norm_update_stats_cpu.
std::tuple<Tensor, Tensor> statistics(const Tensor& x, ScalarType type) {
  Tensor mean = contiguous({x.size(1)}, x, type);
  Tensor variance = contiguous({x.size(1)}, x, type);
  return {mean, variance};
}

void add_statistics(Table& table) {
  table.rule("batch_norm_update_stats",
             [](const Tensor& x, const Optional& mean, const Optional& var, double) {
               return statistics(x, statistics_type(x, {mean, var}));
             });
  table.fill("batch_norm_update_stats",
             [](const Tensor& x, const Optional& mean, const Optional& var, double momentum) {
               const auto [one, other] = at::batch_norm_update_stats(x, mean, var, momentum);
               const ScalarType type = statistics_type(x, {mean, var});
               return std::tuple(as_type(one, type), as_type(other, type));
             });
  table.differs(
      "batch_norm_update_stats",
      [](const Tensor& x, const Optional& mean, const Optional& var, double) {
        return 2 * more_statistics(x, statistics_type_on_cpu(x, {mean, var}), x.size(1));
      },
      "CUDA keeps the statistics in float", kSource);
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
  add_native_batch_norm(table);
  add_legit_batch_norm(table);
  add_updating_batch_norm(table);
  add_statistics(table);
  add_cudnn_batch_norm(table);
}

}  // namespace headroom::sim::rules
