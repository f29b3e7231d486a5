// Records what happens to a device's memory, the same for cuda, sim and cpu: allocations and frees,
// segments that the allocator takes from the card and gives back, and refused requests. Each event
// carries the operator that ran, and module, step and phase from the recorder's scopes.
//
//   trace::Recorder recorder;
//   {
//     const History history = record_history(device, recorder);
//     ... trace::PhaseScope, trace::ModuleScope around what is run ...
//   }
//   trace::export_snapshot("memory.pickle", *trace::read_memory(recorder));
//
// On cuda and cpu, naming the operators costs about 50 ns each while a history is recorded.
#pragma once

#include <c10/core/Device.h>

#include "headroom/trace/recorder.h"

namespace headroom::memory {

// Records the device while it lives; the recorder must outlive it. A device has one History at a
// time. On cuda, destroy it while no other thread allocates on the card.
class History {
 public:
  History(c10::Device device, trace::Recorder& recorder);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

 private:
  c10::Device device_;
};

// Throws UsageError if the device does not exist, is already recorded, or is a CPU that is not
// counted.
[[nodiscard]] inline History record_history(c10::Device device, trace::Recorder& recorder) {
  return History(device, recorder);
}

// The recorder that records this device now; null if none does.
[[nodiscard]] trace::Recorder* recorder_of(c10::Device device);

}  // namespace headroom::memory
