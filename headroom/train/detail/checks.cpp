#include "headroom/train/detail/checks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "headroom/base/error.h"

namespace headroom::train::detail {
namespace {

using at::Tensor;

// "cuda:7" where there is no such card is half a page of LibTorch's dispatch keys later.
bool is_there(const std::string& name) {
  try {
    const c10::Device device(name);
    if (device.is_cpu()) return true;
    return c10::impl::hasDeviceGuardImpl(device.type()) &&
           device.index() < c10::impl::getDeviceGuardImpl(device.type())->deviceCount();
  } catch (const c10::Error&) {  // no device's name
    return false;
  }
}

std::string sizes_of(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

void check(const Plan& plan, const Objective& objective) {
  if (plan.micro_batch < 0)
    throw UsageError(expectation("Step", "a micro-batch of 0 or more rows",
                                 std::to_string(plan.micro_batch), "0, the whole batch at once"));
  if (!plan.device.empty() && !is_there(plan.device))
    throw UsageError(expectation("Step", "a device of this process", plan.device, "cpu"));
  for (const std::string& technique : plan.techniques)
    if (technique != kOffload && !objective.techniques.contains(technique))
      throw UsageError(expectation("Step", "a plan that the objective can follow",
                                   technique + ", which Objective::techniques does not name",
                                   "Objective::follow, and its name in techniques"));
}

void check(const StepOptions& options, const optim::Optimizer& optimizer) {
  if (!(options.max_grad_norm >= 0))
    throw UsageError(
        expectation("Step", "a largest norm of 0 or more", std::to_string(options.max_grad_norm)));
  if (options.autocast && *options.autocast != at::kBFloat16 && *options.autocast != at::kHalf)
    throw UsageError(expectation("Step", "autocast to BFloat16 or Half",
                                 c10::toString(*options.autocast), "at::kBFloat16"));
  if (options.scaling && (!optimizer.can_commit() || !optimizer.takes_scale()))
    throw UsageError(expectation("Step", "a fused optimizer for scaled losses", "another form",
                                 "OptimizerForm::fused"));
  if (options.grow_after < 1)
    throw UsageError(expectation("Step", "1 or more steps without trouble before a faster plan",
                                 std::to_string(options.grow_after), "adapts = false"));
}

void check_trained(const optim::Optimizer& optimizer, const Tensors& of_modules) {
  const Tensors& ours = optimizer.parameters();
  if (std::none_of(ours.begin(), ours.end(), [](const Tensor& one) { return one.requires_grad(); }))
    throw UsageError(expectation("Step", "a parameter to train", "an optimizer of frozen ones",
                                 "requires_grad, or an optimizer of what is trained"));
  const auto is_of_modules = [&](const Tensor& one) {
    return std::any_of(of_modules.begin(), of_modules.end(),
                       [&](const Tensor& other) { return one.is_same(other); });
  };
  if (std::none_of(ours.begin(), ours.end(), is_of_modules))
    throw UsageError(expectation("Step", "an optimizer of the module", "one of another module",
                                 "the optimizer that was made from module->parameters()"));
}

void check_place(const optim::Optimizer& optimizer, const Tensors& of_modules, c10::Device device) {
  const auto refuse_elsewhere = [device](const Tensor& one) {
    if (one.device() != device && one.requires_grad())
      throw UsageError(expectation(
          "Step", "all that is trained on " + device.str() + ", where the step was made",
          "a parameter on " + one.device().str(), "a new step after module->to(device)"));
  };
  for (const Tensor& one : optimizer.parameters()) refuse_elsewhere(one);
  for (const Tensor& one : of_modules) refuse_elsewhere(one);
}

void check_loss(const Tensor& loss) {
  const auto refuse = [](const std::string& received, const std::string& suggestion) {
    throw UsageError(
        expectation("Step::run", "a loss of one number, with a graph", received, suggestion));
  };
  if (!loss.defined()) refuse("an undefined tensor", "returning the loss");
  if (loss.dim() != 0) refuse("a tensor of " + sizes_of(loss), "loss.mean()");
  if (loss.requires_grad()) return;
  if (!at::GradMode::is_enabled())
    refuse("one without", "run() outside of NoGradGuard and InferenceMode");
  refuse("one without", "a loss that was not detached and depends on what is trained");
}

void check_finite(const Tensor& number, const char* what) {
  const double value = number.item<double>();
  if (!std::isfinite(value))
    throw InputError(expectation("Step::run", std::string("a finite ") + what,
                                 std::to_string(value),
                                 "a smaller learning rate, or a look at the rows of this batch"));
}

bool is_complaint(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const UsageError&) {
    return true;
  } catch (const InputError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace headroom::train::detail
