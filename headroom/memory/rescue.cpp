#include "headroom/memory/rescue.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "headroom/cuda/load.h"

namespace headroom::memory {
namespace {

std::mutex rescuers_mutex;  // guards the next
std::vector<std::shared_ptr<Rescuer>>& rescuers() {
  static auto& all = *new std::vector<std::shared_ptr<Rescuer>>;
  return all;
}

std::vector<std::shared_ptr<Rescuer>> rescuers_now() {
  const std::lock_guard lock(rescuers_mutex);
  return rescuers();
}

thread_local bool without_rescue = false;

bool ask(int device, Bytes requested, std::uint32_t stream, int times, c10::Error& error) {
  return is_rescued({.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)),
                     .requested = requested,
                     .stream = stream,
                     .times = times},
                    error);
}

}  // namespace

RescueScope::RescueScope(std::shared_ptr<Rescuer> rescuer) : rescuer_(std::move(rescuer)) {
  const std::lock_guard lock(rescuers_mutex);
  rescuers().insert(rescuers().begin(), rescuer_);
}

RescueScope::~RescueScope() {
  const std::lock_guard lock(rescuers_mutex);
  rescuers().erase(std::find(rescuers().begin(), rescuers().end(), rescuer_));
}

WithoutRescue::WithoutRescue() : before_(std::exchange(without_rescue, true)) {}
WithoutRescue::~WithoutRescue() {
  without_rescue = before_;
}

void rescue_on_cuda() {
  if (cuda_functions().device_count() > 0) cuda_functions().ask_before_refusing(&ask);
}

bool is_rescued(const Refusal& refusal, c10::Error& error) {
  if (without_rescue) return false;
  const WithoutRescue once;  // what a rescuer itself requests is refused at once
  for (const auto& rescuer : rescuers_now()) {
    if (rescuer->frees_for(refusal)) return true;
    if (std::string line = rescuer->why_not(refusal); !line.empty()) error.add_context(line);
  }
  return false;
}

}  // namespace headroom::memory
