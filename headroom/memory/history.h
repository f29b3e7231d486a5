// Everything that happens to a device's memory, into a recorder, the same for cuda, sim and cpu:
// allocations and frees, what the allocator takes from the card and gives back, refusals; each with
// the operator that ran, and with module, step and phase as the recorder's scopes say.
//
//   trace::Recorder recorder;
//   {
//     const History history = record_history(device, recorder);
//     ... trace::PhaseScope, trace::ModuleScope around what is run ...
//   }
//   trace::export_snapshot("memory.pickle", *trace::read_memory(recorder));
//
// On cuda and cpu the operator's name costs some 50 ns an operator while a history is recorded.
#pragma once

#include <c10/core/Device.h>

#include "headroom/trace/recorder.h"

namespace headroom::memory {

// While it lives, the device is recorded; the recorder must live that long. One at a time a device.
// On cuda it ends while no other thread allocates there.
class History {
 public:
  History(c10::Device device, trace::Recorder& recorder);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

 private:
  c10::Device device_;
};

// Throws UsageError: there is no such device, nobody counts the CPU, or it is being recorded.
[[nodiscard]] inline History record_history(c10::Device device, trace::Recorder& recorder) {
  return History(device, recorder);
}

// Who records this device now; null: nobody.
[[nodiscard]] trace::Recorder* recorder_of(c10::Device device);

}  // namespace headroom::memory
