// The memory that a device's tensors take, the same for cuda, sim and cpu.
//
//   const GpuMemoryStats stats = get_gpu_memory_stats(device);
//   log_gpu_memory_stats("after epoch 3", device, [](std::string_view line) { say(line); });
//
// The figures are PyTorch's: `allocated` is the memory that tensors hold, with the allocator's
// rounding; `reserved` is the memory that the allocator took from the card for them. Neither
// includes the CUDA context or other processes. Peaks count from the last
// reset_peak_memory_stats(), or from the start.
//
// Threads: all functions are thread-safe.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::memory {

struct GpuMemoryStats {
  c10::Device device{c10::DeviceType::CPU};
  Bytes allocated;       // held by tensors now
  Bytes reserved;        // taken from the card, for tensors and cache
  Bytes active;          // allocated, or freed and still in use by another stream
  Bytes requested;       // like active, before rounding
  Bytes inactive_split;  // free blocks of partly used segments, which cannot be given back
  Bytes max_allocated, max_reserved, max_active, max_requested;
  Bytes allocated_in_all, freed_in_all;  // sums since the start
  std::int64_t allocations = 0;          // blocks in use now
  std::int64_t segments = 0;
  std::int64_t retries = 0;  // requests repeated after giving the cache back
  std::int64_t ooms = 0;
  // The card's memory. std::nullopt if this process has no context on the card, because asking
  // would create one. For the CPU, the machine's memory; Linux's page cache does not count as free.
  std::optional<Bytes> free, total;
  std::optional<Bytes> limit;  // on `reserved`, set for this process; std::nullopt if there is none

  // The memory that this process could reserve in all: `free` and `reserved`, at most `limit`.
  // std::nullopt if `free` is.
  [[nodiscard]] std::optional<Bytes> obtainable() const;
};

// Throws UsageError for a device that does not exist, or a CPU that is not counted.
[[nodiscard]] GpuMemoryStats get_gpu_memory_stats(c10::Device device);

// From now on this process may reserve at most this much of a card; std::nullopt: all of it. A
// request beyond that fails as on a full card. Returns the limit from before. Throws like
// get_gpu_memory_stats().
std::optional<Bytes> set_memory_limit(c10::Device device, std::optional<Bytes> most);

// Restarts peaks from current usage. Open GpuMemoryScopes keep their own peaks; a reset through
// LibTorch itself loses those, too.
void reset_peak_memory_stats(c10::Device device);

// "after epoch 3: cuda:0 allocated 5.23 GiB, reserved 6.45 GiB, peak 7.12 GiB". With an empty
// prefix the line begins with the device. The library prints nothing; the sink, if given, gets the
// line.
using Sink = std::function<void(std::string_view line)>;
std::string log_gpu_memory_stats(std::string_view prefix, c10::Device device,
                                 const Sink& sink = {});
// Of several devices, with the least and the most of each figure: "after epoch 3: sim:0 to sim:3
// allocated 1.2 to 1.4 MiB, ...".
std::string log_gpu_memory_stats(std::string_view prefix, const std::vector<c10::Device>& devices);

}  // namespace headroom::memory
