#include "headroom/nn/detail/run_state.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::nn::detail {
namespace {

thread_local bool replaying = false;

c10::DeviceType type_of_first(const std::vector<at::Tensor>& inputs) {
  const auto first = std::find_if(inputs.begin(), inputs.end(),
                                  [](const at::Tensor& input) { return input.defined(); });
  if (first == inputs.end())
    throw UsageError(expectation("checkpointed", "at least one input", "none that is defined"));
  return first->device().type();
}

}  // namespace

RunState::Autocast RunState::autocast_now(c10::DeviceType device) {
  if (device == c10::DeviceType::Meta) return {device, at::kFloat, false};
  return {device, at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_enabled(device)};
}

RunState::RunState(const std::vector<at::Tensor>& inputs)
    : random_(libtorch::devices_of(inputs)),
      device_(autocast_now(type_of_first(inputs))),
      cpu_(autocast_now(c10::DeviceType::CPU)) {}

RunState::Replay::Replay(const RunState& then) : is_inner_(replaying), before_(then.random_.now()) {
  then.random_.restore();
  if (then.device_.device != c10::DeviceType::Meta)
    on_device_.emplace(then.device_.device, then.device_.type, then.device_.enabled);
  if (then.device_.device != c10::DeviceType::CPU)
    on_cpu_.emplace(then.cpu_.device, then.cpu_.type, then.cpu_.enabled);
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
