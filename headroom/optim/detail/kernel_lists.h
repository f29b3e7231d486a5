// What the operators of kernels/step.h take.
#pragma once

#include <cstdint>

#include "headroom/kernels/step.h"
#include "headroom/optim/detail/groups.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim::detail {

// Lists of the parameters at the places `of`, which are on the device of `scale`. `indices`: the
// number of each parameter in the optimizer, which stochastic rounding takes.
[[nodiscard]] kernels::StepLists kernel_lists(const Tensors& parameters, const Tensors& gradients,
                                              const Indices& of, const Indices& indices,
                                              const Tensors& steps, const GradientScale& scale);
[[nodiscard]] kernels::Rounding rounding_of(model::Rounding rounding, std::uint64_t seed);

// A skipped step does not count.
void take_back(const Tensors& steps, const GradientScale& scale);

// True for bfloat16 and half.
[[nodiscard]] bool has_16_bits(const at::Tensor& parameter);

}  // namespace headroom::optim::detail
