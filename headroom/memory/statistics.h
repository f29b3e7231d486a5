// How much memory a device's tensors take, the same for cuda, sim and cpu.
//
//   const GpuMemoryStats stats = get_gpu_memory_stats(device);
//   log_gpu_memory_stats("after epoch 3", device, [](std::string_view line) { say(line); });
//
// The figures are PyTorch's: `allocated` is what tensors have, rounded as the allocator rounds,
// `reserved` what it took from the card for them. Neither contains the CUDA context nor other
// processes. Peaks are since reset_peak_memory_stats(), or since the start.
//
// Threads: everything may be called from any.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::memory {

struct GpuMemoryStats {
  c10::Device device{c10::DeviceType::CPU};
  Bytes allocated;       // by tensors now
  Bytes reserved;        // of the card, for tensors and cache
  Bytes active;          // allocated, or freed and still in use by another stream
  Bytes requested;       // as active, before rounding
  Bytes inactive_split;  // free, in pieces of blocks that are partly used: cannot be given back
  Bytes max_allocated, max_reserved, max_active, max_requested;
  Bytes allocated_in_all, freed_in_all;  // sums since the start
  std::int64_t allocations = 0;          // blocks in use now
  std::int64_t segments = 0;
  std::int64_t retries = 0;  // requests that went only after the cache was given back
  std::int64_t ooms = 0;
  // Of the card. Nothing: this process has no context there, and looking would make one. Of the CPU
  // they are the machine's, and what Linux uses as a cache is not free.
  std::optional<Bytes> free, total;
};

// Throws UsageError for a device that is not there, or the CPU when nobody counts it.
[[nodiscard]] GpuMemoryStats get_gpu_memory_stats(c10::Device device);

// From here on the peaks are of what is in use now, or more. A GpuMemoryScope that is open keeps
// its own. Whoever resets them through LibTorch itself takes them from the open scopes, too.
void reset_peak_memory_stats(c10::Device device);

// "after epoch 3: cuda:0 allocated 5.23 GiB, reserved 6.45 GiB, peak 7.12 GiB"; with an empty
// prefix it begins with the device. The library prints nothing: the sink, if any, does.
using Sink = std::function<void(std::string_view line)>;
std::string log_gpu_memory_stats(std::string_view prefix, c10::Device device,
                                 const Sink& sink = {});

}  // namespace headroom::memory
