// What Headroom asks of CUDA beyond what LibTorch offers for every device, as a table that exists
// twice: `cuda`, in libheadroom_cuda.so, answers from the cards, `no_cuda`, in libheadroom.so, says
// that there are none. So callers have one way, no #ifdef, and a build is the same everywhere.
//
//   const CudaFunctions& cuda = cuda_functions();   // headroom/no_cuda/load.h
//   if (cuda.device_count() == 0) say(cuda.why_absent());
//
// Devices are LibTorch's numbers (of cuda:N), not nvidia-smi's. Nothing here makes a context on a
// card except memory_info and synchronize. Where `no_cuda` is asked for what only a card can tell,
// it throws UnavailableError with the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/gpu/uuid.h"

namespace headroom::trace {
class Recorder;
}

namespace headroom::libtorch {

// Raised with every change below: a library of another build is refused rather than misread.
inline constexpr int kCudaFunctionsVersion = 1;

struct CudaFunctions {
  std::string_view name;  // "cuda" or "no_cuda"

  // "" where there are cards to use; otherwise one sentence.
  std::string (*why_absent)();
  // Cards that this process's CUDA sees.
  int (*device_count)();
  // LibTorch's number of this card or MIG slice; nothing: CUDA does not see it.
  std::optional<int> (*device_of)(const gpu::Uuid& card);
  // Whether this process has a context there already.
  bool (*has_context)(int device);

  // ---- Memory ----

  // Free and total of the card, as the driver has them. Makes a context.
  std::pair<Bytes, Bytes> (*memory_info)(int device);
  // What this process may reserve there, of the whole card; 1: no limit.
  void (*set_memory_fraction)(int device, double fraction);
  double (*memory_fraction)(int device);
  // Waits until the card has done all that was asked of it.
  void (*synchronize)(int device);
  // Pinned host memory that is cached and unused goes back to the system.
  void (*empty_host_cache)();
  // What cuBLAS keeps for each handle and stream; it is taken again when needed.
  void (*clear_workspaces)();

  // ---- What happens ----

  // The caching allocator's segments and blocks on the card, by address.
  std::vector<allocator::SegmentInfo> (*snapshot)(int device);
  // Everything the allocator does on the card goes to the recorder, until null is given.
  void (*record)(int device, trace::Recorder* recorder);
  // Of the last refusal since the table was loaded.
  std::optional<allocator::OutOfMemory> (*last_out_of_memory)(int device);
};

}  // namespace headroom::libtorch
