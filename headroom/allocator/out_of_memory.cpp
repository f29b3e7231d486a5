// The error text of a refused request, as PyTorch words it.
#include <fmt/format.h>

#include <cstdio>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::allocator {

namespace {

std::string in_units(Bytes size) {
  const auto bytes = static_cast<double>(size.count);
  const auto with_unit = [](double amount, const char* unit) {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f %s", amount, unit);
    return std::string(text);
  };
  if (size.count <= 1 << 10) return std::to_string(size.count) + " bytes";
  if (size.count <= 1 << 20) return with_unit(bytes / (1 << 10), "KiB");
  if (size.count <= 1 << 30) return with_unit(bytes / (1 << 20), "MiB");
  return with_unit(bytes / (1 << 30), "GiB");
}

}  // namespace

std::string to_string(const OutOfMemory& refusal, const std::string& device) {
  if (refusal.requested >= kTooLarge)
    return "CUDA out of memory. Tried to allocate more than 1EB memory.";
  if (refusal.rejected_beforehand)
    return "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
           "per_process_memory_fraction limit. Requested size: " +
           in_units(refusal.requested);
  const Bytes in_pools = refusal.free_in_private_pools;
  std::string text = fmt::format(
      "CUDA out of memory. Tried to allocate {}. {} has a total capacity of {} of which {} is "
      "free. ",
      in_units(refusal.tried), device, in_units(refusal.capacity), in_units(refusal.free));
  if (refusal.limit) text += in_units(*refusal.limit) + " allowed; ";
  text += fmt::format("Of the allocated memory {} is allocated by PyTorch, ",
                      in_units(refusal.allocated + in_pools));
  if (in_pools.count > 0)
    text +=
        fmt::format("with {} allocated in private pools (e.g., CUDA Graphs), ", in_units(in_pools));
  text += fmt::format("and {} is reserved by PyTorch but unallocated.",
                      in_units(refusal.reserved - refusal.allocated - in_pools));
  if (refusal.address_reserve)
    return fmt::format(
        "{} This allocation exceeds the expandable-segment reserve of {} for this stream, and a "
        "single allocation cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF "
        "expandable_segments_reserve or expandable_segments_reserve_by_class (or unset it) so that "
        "a segment is at least {}.",
        text, in_units(*refusal.address_reserve), in_units(refusal.tried));
  if (refusal.end == RefusalEnd::bare) return text;
  if (refusal.end == RefusalEnd::speaks_of_address_space)
    return text +
           " expandable_segments is enabled. If instead the process is running out of virtual "
           "address space (VSZ), expandable segments may be over-reserving VA (each segment "
           "reserves ~9/8 of device memory, times the number of streams); reduce it via "
           "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / "
           "expandable_segments_reserve_by_class.";
  text +=
      " If reserved but unallocated memory is large "
      "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
      "See documentation for Memory Management  "
      "(https://docs.pytorch.org/docs/stable/notes/"
      "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
  return text;
}

}  // namespace headroom::allocator
