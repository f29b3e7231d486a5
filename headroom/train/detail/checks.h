// Checks that a step makes before it changes anything. Each function throws UsageError, unless it
// says otherwise.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <exception>

#include "headroom/optim/optimizer.h"
#include "headroom/train/objective.h"
#include "headroom/train/plan.h"
#include "headroom/train/step_options.h"

namespace headroom::train::detail {

// The technique that the step itself puts on: an objective knows nothing of it.
inline constexpr const char* kOffload = "offload";

// Sizes, devices, and techniques that the objective's `follow` does not know.
void check(const Plan& plan, const Objective& objective);
void check(const StepOptions& options, const optim::Optimizer& optimizer);
// The optimizer trains something, and some of it belongs to the modules of the step.
void check_trained(const optim::Optimizer& optimizer, const Tensors& of_modules);
// All that is trained lies on `device`.
void check_place(const optim::Optimizer& optimizer, const Tensors& of_modules, c10::Device device);
// One number with a graph.
void check_loss(const at::Tensor& loss);
// Waits for the device. Throws InputError.
void check_finite(const at::Tensor& number, const char* what);
// True for what these functions throw: no other plan would help.
[[nodiscard]] bool is_complaint(const std::exception_ptr& failure);

}  // namespace headroom::train::detail
