#include "headroom/libtorch/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace headroom::libtorch {
namespace {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

bool same_bytes(const at::Tensor& one, const at::Tensor& other) {
  return one.nbytes() == other.nbytes() &&
         std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) == 0;
}

// In a child of a process that has used CUDA the driver refuses the question: no context there.
bool has_context(const at::AcceleratorHooksInterface& hooks, c10::DeviceIndex index) {
  try {
    return hooks.hasPrimaryContext(index);
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

RandomState::RandomState(const std::vector<c10::Device>& devices, bool with_cpu) {
  if (with_cpu) take(at::detail::getDefaultCPUGenerator());
  for (const c10::Device device : devices)
    if (!device.is_cpu() && !device.is_meta()) take(at::globalContext().defaultGenerator(device));
}

bool RandomState::take(const at::Generator& generator) {
  const auto is_same = [&](const auto& known) { return known.first == generator; };
  if (!generator.defined() || std::any_of(states_.begin(), states_.end(), is_same)) return false;
  states_.emplace_back(generator, state_of(generator));
  return true;
}

void RandomState::restore() const {
  for (auto [generator, state] : states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

RandomState RandomState::now() const {
  RandomState now = *this;
  for (auto& [generator, state] : now.states_) state = state_of(generator);
  return now;
}

std::vector<std::pair<std::string, at::Tensor>> RandomState::named() const {
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const auto& [generator, state] : states_)
    named.emplace_back(generator.device().str(), state);
  return named;
}

bool RandomState::restore(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  const RandomState here(devices_in_use());
  bool all = true;
  for (const auto& [name, state] : named) {
    const std::string& device = name;  // clang 14 captures no structured binding
    const auto is_its = [&](const auto& one) { return one.first.device().str() == device; };
    const auto found = std::find_if(here.states_.begin(), here.states_.end(), is_its);
    if (found == here.states_.end()) {
      all = false;
      continue;
    }
    at::Generator generator = found->first;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
  return all;
}

void RandomState::keep_used() {
  std::erase_if(states_,
                [](const auto& one) { return same_bytes(one.second, state_of(one.first)); });
}

std::vector<c10::Device> devices_in_use() {
  std::vector<c10::Device> devices;
  const auto add = [&](const at::AcceleratorHooksInterface& hooks, c10::DeviceType type) {
    const c10::DeviceIndex count = hooks.deviceCount();
    for (c10::DeviceIndex i = 0; i < count; ++i)
      if (has_context(hooks, i)) devices.emplace_back(type, i);
  };
  if (at::isPrivateUse1HooksRegistered())
    add(at::detail::getPrivateUse1Hooks(), c10::DeviceType::PrivateUse1);
  if (at::globalContext().hasCUDA()) add(at::detail::getCUDAHooks(), c10::DeviceType::CUDA);
  return devices;
}

std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() &&
        std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  return devices;
}

}  // namespace headroom::libtorch
