// Results of Python's PyTorch for small fixed parameters (tests/peers/optimizers.py, stored in
// optimizers.json), and the same parameters and gradients here.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "headroom/optim/optimizer.h"

namespace headroom::optim {

[[nodiscard]] const nlohmann::json& figures();
[[nodiscard]] const nlohmann::json& trained_case(const std::string& name);

[[nodiscard]] std::vector<at::Tensor> start(at::ScalarType type, c10::Device device = at::kCPU);
void set_gradients(const std::vector<at::Tensor>& parameters, int step);

// The optimizer of a case of "trained", which names PyTorch's options.
[[nodiscard]] std::unique_ptr<Optimizer> optimizer_of(const nlohmann::json& one,
                                                      std::vector<at::Tensor> parameters);
// After five steps.
[[nodiscard]] std::unique_ptr<Optimizer> trained(const nlohmann::json& one,
                                                 c10::Device device = at::kCPU);

// Each number, within `tolerance`.
void expect_equal(const at::Tensor& ours, const nlohmann::json& theirs, double tolerance = 1e-6);

[[nodiscard]] std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& all);  // copies
// Each tensor by its norm; a tolerance of 0 means every bit.
void expect_near(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs,
                 double tolerance);

}  // namespace headroom::optim
