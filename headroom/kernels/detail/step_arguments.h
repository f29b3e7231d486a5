// The arguments that all operators of step.h share, and what they must be. Meta kernels check the
// same, so that a wrong call also fails on a shape-only card.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/kernels/detail/step_work.h"
#include "headroom/kernels/step.h"

namespace headroom::kernels::detail {

struct StepArguments {
  at::TensorList parameters, gradients, steps;
  at::IntArrayRef numbers;
  std::optional<std::int64_t> seed;  // of stochastic rounding
  const std::optional<at::Tensor>&scale, &not_finite;

  // Each throws c10::Error.
  void check(bool needs_steps) const;
  void check_states(at::TensorList states) const;
  void check_codes(at::TensorList codes, at::TensorList scales, std::int64_t bits) const;

  // Of parameter i, but for states and steps. Pointers into the device's memory.
  [[nodiscard]] Work work(std::size_t i) const;
};

[[nodiscard]] Numbers numbers_of(const at::Tensor& tensor);

// Rates as an operator takes them.
[[nodiscard]] AdamwRates adamw_rates(at::ArrayRef<double> rates);
[[nodiscard]] SgdRates sgd_rates(at::ArrayRef<double> rates);

}  // namespace headroom::kernels::detail
