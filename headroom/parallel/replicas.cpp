#include "headroom/parallel/replicas.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::parallel::detail {
namespace {

template <typename Named>
void copy_all(const Named& from, const Named& to) {
  const at::NoGradGuard no_grad;
  const auto fails = [](const std::string& what) {
    throw UsageError(
        expectation("Replicas", "a function that makes the same module each time", what));
  };
  if (from.size() != to.size()) fails("modules with different tensors");
  for (const auto& one : from) {
    const at::Tensor* const other = to.find(one.key());
    if (other == nullptr || other->defined() != one->defined() ||
        (one->defined() && other->sizes() != one->sizes()))
      fails("modules that differ at " + one.key());
    if (one->defined()) at::Tensor(*other).copy_(*one);
  }
}

}  // namespace

void copy_values(const torch::nn::Module& from, torch::nn::Module& to) {
  copy_all(from.named_parameters(), to.named_parameters());
  copy_all(from.named_buffers(), to.named_buffers());
}

void check_devices(const std::vector<c10::Device>& devices) {
  if (devices.empty()) throw UsageError(expectation("Replicas", "devices", "none"));
  for (auto one = devices.begin(); one != devices.end(); ++one)
    if (!one->is_cpu() && std::find(devices.begin(), one, *one) != one)
      throw UsageError(expectation("Replicas", "a device for each replica", one->str() + " twice"));
}

}  // namespace headroom::parallel::detail
