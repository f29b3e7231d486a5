// The statistics that normalisations keep for backward: in CUDA's accumulation type; on the CPU in
// the input's type, or in the parameters' where that is float.
#pragma once

#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {

inline const Tensor& or_none(const OptionalTensor& x) {
  static const Tensor none;
  return x.has_value() ? *x : none;
}

// For half or bfloat16 with float parameters.
// Source: aten/src/ATen/native/cpu/mixed_data_type.h.
inline ScalarType statistics_type_on_cpu(const Tensor& x,
                                         std::initializer_list<OptionalTensor> parameters) {
  for (const OptionalTensor& parameter : parameters)
    if (is_defined(parameter))
      return parameter->scalar_type() == x.scalar_type() ? x.scalar_type() : at::kFloat;
  return x.scalar_type();
}

inline ScalarType statistics_type(const Tensor& x,
                                  std::initializer_list<OptionalTensor> parameters) {
  return follows_cuda() ? accumulation_type(x.scalar_type())
                        : statistics_type_on_cpu(x, parameters);
}

inline std::int64_t more_statistics(const Tensor& x, ScalarType on_cpu, std::int64_t elements) {
  const auto bytes = [](ScalarType type) {
    return static_cast<std::int64_t>(c10::elementSize(type));
  };
  return elements * (bytes(accumulation_type(x.scalar_type())) - bytes(on_cpu));
}

// CUDA's float statistics of half-precision tensors, in the type that the CPU's kernel takes.
inline Tensor as_type(const Tensor& statistics, ScalarType type) {
  return statistics.defined() ? statistics.to(type) : statistics;
}

}  // namespace headroom::sim::rules
