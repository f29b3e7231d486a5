#include "headroom/kernels/detail/step_arguments.h"

#include <c10/util/Exception.h>

namespace headroom::kernels::detail {
namespace {

using at::Tensor;

// A dimension of size 1 may have any stride.
bool is_in_order_of(const Tensor& tensor, const Tensor& parameter) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) != 1 && tensor.stride(dim) != parameter.stride(dim)) return false;
  return true;
}

void check_like(const Tensor& tensor, const Tensor& parameter, const char* name) {
  TORCH_CHECK(tensor.sizes() == parameter.sizes() && is_in_order_of(tensor, parameter) &&
                  tensor.is_non_overlapping_and_dense(),
              "headroom: expected ", name, " that lies densely and in its parameter's order, of ",
              parameter.sizes(), " with strides ", parameter.strides(), ", received ",
              tensor.sizes(), " with ", tensor.strides());
}

void check_count(std::size_t count, std::size_t parameters, const char* name) {
  TORCH_CHECK(count == parameters, "headroom: expected ", parameters, " ", name, ", received ",
              count);
}

void check_flat(const Tensor& tensor, at::ScalarType type, std::int64_t count, const char* name) {
  TORCH_CHECK(tensor.scalar_type() == type && tensor.is_contiguous() && tensor.numel() == count,
              "headroom: expected ", count, " ", name, " of ", type, ", received ", tensor.numel(),
              " of ", tensor.scalar_type());
}

void check_parameter(const Tensor& parameter, const Tensor& gradient) {
  const at::ScalarType type = parameter.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf,
              "headroom: expected parameters of float, bfloat16 or half, received ", type);
  TORCH_CHECK(gradient.scalar_type() == type, "headroom: expected a gradient of ", type,
              ", received ", gradient.scalar_type());
  check_like(parameter, parameter, "a parameter");
  check_like(gradient, parameter, "a gradient");
}

}  // namespace

void StepArguments::check(bool needs_steps) const {
  check_count(gradients.size(), parameters.size(), "gradients");
  for (std::size_t i = 0; i < parameters.size(); ++i) check_parameter(parameters[i], gradients[i]);
  if (needs_steps || seed) check_count(steps.size(), parameters.size(), "steps");
  if (seed) check_count(numbers.size(), parameters.size(), "numbers");
  for (const Tensor& step : steps) check_flat(step, at::kFloat, 1, "step");
  if (scale) check_flat(*scale, at::kFloat, 1, "scale");
  if (not_finite) check_flat(*not_finite, at::kFloat, 1, "not_finite");
}

void StepArguments::check_states(at::TensorList states) const {
  check_count(states.size(), parameters.size(), "states");
  for (std::size_t i = 0; i < states.size(); ++i) {
    check_like(states[i], parameters[i], "a state");
    const at::ScalarType type = states[i].scalar_type();
    TORCH_CHECK(type == at::kFloat || type == parameters[i].scalar_type(),
                "headroom: expected states of float or the parameter's type, received ", type);
  }
}

void StepArguments::check_codes(at::TensorList codes, at::TensorList scales,
                                std::int64_t bits) const {
  TORCH_CHECK(bits == 8 || bits == 4, "headroom: expected states of 8 or 4 bits, received ", bits);
  check_count(codes.size(), parameters.size(), "states");
  check_count(scales.size(), parameters.size(), "scales");
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::int64_t count = parameters[i].numel();
    check_flat(codes[i], at::kByte, code_bytes(count, static_cast<int>(bits)), "codes");
    check_flat(scales[i], at::kFloat, code_blocks(count, static_cast<int>(bits)), "scales");
  }
}

Work StepArguments::work(std::size_t i) const {
  Work work{};
  work.count = parameters[i].numel();
  work.parameter = numbers_of(parameters[i]);
  work.gradient = numbers_of(gradients[i]);
  work.scale = scale ? scale->const_data_ptr<float>() : nullptr;
  work.stochastic = seed && work.parameter.type != Type::float32;
  if (work.stochastic)
    work.random = {static_cast<std::uint64_t>(*seed), 0, static_cast<std::uint32_t>(numbers[i])};
  return work;
}

Numbers numbers_of(const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return {tensor.mutable_data_ptr(), type == at::kFloat      ? Type::float32
                                     : type == at::kBFloat16 ? Type::bfloat16
                                                             : Type::float16};
}

AdamwRates adamw_rates(at::ArrayRef<double> rates) {
  TORCH_CHECK(rates.size() == 5, "headroom: expected 5 rates, received ", rates.size());
  return {rates[0], rates[1], rates[2], rates[3], rates[4]};
}

SgdRates sgd_rates(at::ArrayRef<double> rates) {
  TORCH_CHECK(rates.size() == 5, "headroom: expected 5 rates, received ", rates.size());
  return {rates[0], rates[1], rates[2], rates[3], rates[4] != 0};
}

}  // namespace headroom::kernels::detail
