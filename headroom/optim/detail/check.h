// Refuses what PyTorch's constructors and steps refuse.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "headroom/model/run_settings.h"

namespace headroom::optim::detail {

// Each throws UsageError naming the optimizer ("SGD").
void check_not_negative(std::string_view optimizer, std::string_view option, double value);
void check_not_above_zero(std::string_view optimizer, std::string_view option, double value);
void check_share(std::string_view optimizer, std::string_view option, double value);  // [0, 1)
// For stochastic rounding.
void check_can_round(std::string_view optimizer, model::OptimizerForm form);
void check_dense(std::string_view optimizer, const std::vector<at::Tensor>& gradients);
void check_real(std::string_view optimizer, const std::vector<at::Tensor>& parameters);
// Float, bfloat16 or half.
void check_single_precision(std::string_view optimizer, const std::vector<at::Tensor>& parameters);

}  // namespace headroom::optim::detail
