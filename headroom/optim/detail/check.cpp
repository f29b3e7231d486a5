#include "headroom/optim/detail/check.h"

#include <ATen/ATen.h>

#include <sstream>

#include "headroom/base/error.h"

namespace headroom::optim::detail {
namespace {

void require(bool right, std::string_view optimizer, std::string_view option,
             std::string_view range, double value) {
  if (right) return;
  std::ostringstream received;
  received << value;
  throw UsageError(
      expectation(optimizer, std::string(option) + " " + std::string(range), received.str()));
}

}  // namespace

// Each comparison is false for NaN, so NaN is refused.
void check_not_negative(std::string_view optimizer, std::string_view option, double value) {
  require(value >= 0, optimizer, option, "of at least 0", value);
}

void check_not_above_zero(std::string_view optimizer, std::string_view option, double value) {
  require(value <= 0, optimizer, option, "of at most 0", value);
}

void check_share(std::string_view optimizer, std::string_view option, double value) {
  require(value >= 0 && value < 1, optimizer, option, "from 0 to below 1", value);
}

void check_can_round(std::string_view optimizer, model::OptimizerForm form) {
  if (form != model::OptimizerForm::fused)
    throw UsageError(expectation(optimizer, "the form fused for stochastic rounding",
                                 "loop or foreach", "OptimizerForm::fused"));
}

void check_dense(std::string_view optimizer, const std::vector<at::Tensor>& gradients) {
  for (const at::Tensor& gradient : gradients)
    if (gradient.is_sparse())
      throw UsageError(expectation(optimizer, "dense gradients", "a sparse one",
                                   "SGD in the loop or foreach form"));
}

void check_real(std::string_view optimizer, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters)
    if (!parameter.is_floating_point())
      throw UsageError(expectation(optimizer, "parameters of a floating-point type",
                                   c10::toString(parameter.scalar_type()), "SGD"));
}

void check_single_precision(std::string_view optimizer, const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters)
    if (parameter.scalar_type() != at::kFloat && parameter.scalar_type() != at::kBFloat16 &&
        parameter.scalar_type() != at::kHalf)
      throw UsageError(expectation(optimizer, "parameters of float, bfloat16 or half",
                                   c10::toString(parameter.scalar_type()), "make_adamw"));
}

}  // namespace headroom::optim::detail
