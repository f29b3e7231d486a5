#include "headroom/nn/detail/run_state.h"

#include <ATen/autocast_mode.h>

#include "headroom/base/error.h"

namespace headroom::nn::detail {
namespace {

thread_local bool replaying = false;

std::vector<c10::Device> all_devices(const std::vector<at::Tensor>& inputs) {
  std::vector<c10::Device> devices = libtorch::devices_of(inputs);
  if (devices.empty())
    throw UsageError(expectation("checkpointed", "at least one input", "none that is defined"));
  for (const c10::Device device : libtorch::devices_in_use()) devices.push_back(device);
  return devices;
}

}  // namespace

RunState::Autocast RunState::autocast_now(c10::DeviceType device) {
  return {device, at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_enabled(device)};
}

RunState::RunState(const std::vector<at::Tensor>& inputs)
    : random_(all_devices(inputs)),
      autocast_{autocast_now(c10::DeviceType::CPU), autocast_now(c10::DeviceType::CUDA),
                autocast_now(c10::DeviceType::PrivateUse1)} {}

RunState::Replay::Replay(const RunState& then) : is_inner_(replaying), before_(then.random_.now()) {
  then.random_.restore();
  for (const Autocast& one : then.autocast_)
    autocast_.emplace_back(one.device, one.type, one.enabled);
  replaying = true;
}

bool RunState::Replay::is_running() {
  return replaying;
}

RunState::Replay::~Replay() {
  replaying = is_inner_;
  try {
    before_.restore();
  } catch (...) {  // a generator refuses its own state: nothing can be done here
  }
}

}  // namespace headroom::nn::detail
