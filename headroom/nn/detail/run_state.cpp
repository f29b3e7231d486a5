#include "headroom/nn/detail/run_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <mutex>

namespace headroom::nn::detail {
namespace {

using RandomStates = std::vector<std::pair<at::Generator, at::Tensor>>;

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

RandomStates states_for(c10::Device device) {
  RandomStates states;
  const auto add = [&](const at::Generator& generator) {
    states.emplace_back(generator, state_of(generator));
  };
  add(at::detail::getDefaultCPUGenerator());
  if (!device.is_cpu() && !device.is_meta()) add(at::globalContext().defaultGenerator(device));
  return states;
}

RandomStates states_now(RandomStates of_the_same) {
  for (auto& [generator, state] : of_the_same) state = state_of(generator);
  return of_the_same;
}

void put_back(const RandomStates& states) {
  for (const auto& [generator, state] : states) set_state(generator, state);
}

}  // namespace

RunState::Autocast RunState::autocast_now(c10::DeviceType device) {
  if (device == c10::DeviceType::Meta) return {device, at::kFloat, false};
  return {device, at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_enabled(device)};
}

RunState::RunState(c10::Device device)
    : random_(states_for(device)),
      device_(autocast_now(device.type())),
      cpu_(autocast_now(c10::DeviceType::CPU)) {}

RunState::Replay::Replay(const RunState& then) : before_(states_now(then.random_)) {
  put_back(then.random_);
  if (then.device_.device != c10::DeviceType::Meta)
    on_device_.emplace(then.device_.device, then.device_.type, then.device_.enabled);
  if (then.device_.device != c10::DeviceType::CPU)
    on_cpu_.emplace(then.cpu_.device, then.cpu_.type, then.cpu_.enabled);
}

RunState::Replay::~Replay() {
  try {
    put_back(before_);
  } catch (...) {  // a generator refuses its own state: nothing can be done here
  }
}

}  // namespace headroom::nn::detail
