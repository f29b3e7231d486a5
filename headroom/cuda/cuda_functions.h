// The CUDA functions that Headroom needs beyond LibTorch's device-independent ones, as a table with
// two implementations. `cuda`, in libheadroom_cuda.so, calls the cards; `no_cuda`, in
// libheadroom.so, reports that there are none. Callers have one code path without #ifdef, and the
// build is the same everywhere.
//
//   const CudaFunctions& cuda = cuda_functions();   // headroom/cuda/load.h
//   if (cuda.device_count() == 0) say(cuda.why_absent());
//
// Devices are LibTorch's numbers (of cuda:N), not nvidia-smi's. Only memory_info and synchronize
// create a context on a card. Functions that need a card throw UnavailableError, with the reason,
// in `no_cuda`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/allocator/caching_allocator.h"

namespace c10 {
class Error;
}

namespace headroom::trace {
class Recorder;
}

namespace headroom {

// Incremented with every change below: a library with another version is refused, not misread.
inline constexpr int kCudaFunctionsVersion = 3;

struct CudaFunctions {
  std::string_view name;  // "cuda" or "no_cuda"

  // "" if there are usable cards; otherwise one sentence.
  std::string (*why_absent)();
  // Cards visible to this process's CUDA.
  int (*device_count)();
  // True if this process already has a context on the card.
  bool (*has_context)(int device);

  // ---- Memory ----

  // Free and total memory of the card, from the driver. Creates a context.
  std::pair<Bytes, Bytes> (*memory_info)(int device);
  // The share of the card that this process may reserve; 1: no limit.
  void (*set_memory_fraction)(int device, double fraction);
  double (*memory_fraction)(int device);
  // Waits until the card has finished all its work.
  void (*synchronize)(int device);
  // Returns cached, unused pinned host memory to the system.
  void (*empty_host_cache)();
  // Frees cuBLAS's workspaces, one per handle and stream; cuBLAS allocates them again when needed.
  void (*clear_workspaces)();

  // ---- Refusals ----

  // Called before a request fails, with the stream as in a snapshot and how often this request was
  // refused. True: the request is made again. It may add a line to the error.
  using Ask = bool (*)(int device, Bytes requested, std::uint32_t stream, int times,
                       c10::Error& error);
  // From now on this is asked, until null is given. Without cards it has no effect.
  void (*ask_before_refusing)(Ask ask);

  // ---- Allocator events ----

  // The caching allocator's segments and blocks on the card, by address.
  std::vector<allocator::SegmentInfo> (*snapshot)(int device);
  // Sends every allocator event of the card to the recorder; null stops it.
  void (*record)(int device, trace::Recorder* recorder);
};

}  // namespace headroom
