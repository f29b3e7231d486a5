#include "headroom/optim/detail/kernel_lists.h"

#include <ATen/ATen.h>

namespace headroom::optim::detail {

kernels::StepLists kernel_lists(const Tensors& parameters, const Tensors& gradients,
                                const Indices& of, const Indices& indices, const Tensors& steps,
                                const GradientScale& scale) {
  kernels::StepLists lists{.parameters = select(parameters, of),
                           .gradients = select(gradients, of),
                           .steps = steps,
                           .numbers = {},
                           .scale = if_defined(scale.scale),
                           .not_finite = if_defined(scale.not_finite)};
  for (const std::size_t i : of) lists.numbers.push_back(static_cast<std::int64_t>(indices[i]));
  return lists;
}

kernels::Rounding rounding_of(model::Rounding rounding, std::uint64_t seed) {
  return {.stochastic = rounding == model::Rounding::stochastic, .seed = seed};
}

void take_back(const Tensors& steps, const GradientScale& scale) {
  if (scale.not_finite.defined() && !steps.empty())
    at::_foreach_sub_(steps, Tensors(steps.size(), scale.not_finite));
}

bool has_16_bits(const at::Tensor& parameter) {
  return parameter.scalar_type() == at::kBFloat16 || parameter.scalar_type() == at::kHalf;
}

}  // namespace headroom::optim::detail
