// The steps of every exported function before its own work: it counts and logs the call, refreshes
// the state, finds the device, and lets a fault strike.
//
// An export is then one expression:
//
//   Status nvmlDeviceGetPowerUsage(DeviceHandle device, unsigned* milliwatts) {
//     return on_device(Function::nvmlDeviceGetPowerUsage, device, [&](const Target& target) {
//       return give(target.card->power_mw, milliwatts);
//     });
//   }
//
// Thread-safe: the bookkeeping holds one lock, never while a fault hangs; the bodies read an
// immutable State without one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "nvml_abi.h"
#include "state.h"

#define FAKE_NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_nvml {

/// What one call acts on. `state` keeps the rest alive while the file is read anew elsewhere.
struct Target {
  std::shared_ptr<const State> state;
  const Card* card = nullptr;
  const MigDevice* mig = nullptr;  // null for a whole card
  unsigned card_index = 0, mig_index = 0;
};

/// Where a call leads: `status` is the answer when it leads nowhere.
struct Place {
  Status status = Status::kSuccess;
  std::optional<std::size_t> card, mig;
};

using Locate = std::function<Place(const State&)>;

/// The steps before the body. On success `target` is filled.
[[nodiscard]] Status begin(Function function, const Locate& locate, Target& target);

/// Finds what a handle stands for in `state`, also after cards changed places.
[[nodiscard]] Place locate_handle(const State& state, DeviceHandle handle);

/// The handle of a card or MIG device; the same one for the same UUID, valid for ever.
[[nodiscard]] DeviceHandle handle_of(const std::string& card_uuid,
                                     const std::string& mig_uuid = "");

/// nvmlInit*, nvmlShutdown: the reference count.
[[nodiscard]] Status init(Function function);
[[nodiscard]] Status shut_down();

/// Counts a call that has no other side (nvmlErrorString).
void note(Function function);

/// How often this process called the functions of a pattern ("nvmlDeviceGet*"); 0 for nonsense.
[[nodiscard]] unsigned long calls_of(const std::string& pattern);

template <class Body>
[[nodiscard]] Status on_system(Function function, Body body) {
  Target target;
  const Status status = begin(
      function, [](const State&) { return Place{}; }, target);
  return status == Status::kSuccess ? body(*target.state) : status;
}

template <class Body>
[[nodiscard]] Status on_device(Function function, DeviceHandle device, Body body) {
  Target target;
  const auto locate = [device](const State& state) { return locate_handle(state, device); };
  const Status status = begin(function, locate, target);
  return status == Status::kSuccess ? body(target) : status;
}

/// As on_device, for what exists only for a whole card. Real drivers answer some of these for MIG
/// devices too, but no documentation promises it, so a caller that relies on it should fail here.
template <class Body>
[[nodiscard]] Status on_whole_card(Function function, DeviceHandle device, Body body) {
  return on_device(function, device, [&](const Target& target) {
    return target.mig == nullptr ? body(target) : Status::kNotSupported;
  });
}

/// Writes one value through the caller's pointer.
template <class Value, class Out>
[[nodiscard]] Status give(const Value& value, Out* out) {
  if (out == nullptr) return Status::kInvalidArgument;
  *out = static_cast<Out>(value);
  return Status::kSuccess;
}

template <class Value, class Out>
[[nodiscard]] Status give(const std::optional<Value>& value, Out* out) {
  return value ? give(*value, out) : Status::kNotSupported;
}

/// Writes text with its final zero, or nothing at all when the buffer is too small.
[[nodiscard]] Status give_text(const std::string& text, char* out, unsigned length);

}  // namespace fake_nvml
