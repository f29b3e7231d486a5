// The statistics that normalisations keep for backward: in CUDA's accumulation type; on the CPU in
// the input's type, or in the parameters' where that is float.
#pragma once

#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {

// For half or bfloat16 with float parameters.
// Source: aten/src/ATen/native/cpu/mixed_data_type.h.
inline ScalarType statistics_type_on_cpu(const Tensor& x,
                                         std::initializer_list<Optional> parameters) {
  for (const Optional& parameter : parameters)
    if (is_defined(parameter))
      return parameter->scalar_type() == x.scalar_type() ? x.scalar_type() : at::kFloat;
  return x.scalar_type();
}

inline ScalarType statistics_type(const Tensor& x, std::initializer_list<Optional> parameters) {
  return follows_cuda() ? accumulation_type(x.scalar_type())
                        : statistics_type_on_cpu(x, parameters);
}

// Such as mean and deviation.
inline std::tuple<Tensor, Tensor> two_a_channel(const Tensor& x, ScalarType type) {
  Tensor one = contiguous({x.size(1)}, x, type);
  Tensor other = contiguous({x.size(1)}, x, type);
  return {one, other};
}

// CUDA's float statistics of half-precision tensors, in the type that the CPU's kernel takes.
inline Tensor as_type(const Tensor& statistics, ScalarType type) {
  return statistics.defined() ? statistics.to(type) : statistics;
}

}  // namespace headroom::sim::rules
