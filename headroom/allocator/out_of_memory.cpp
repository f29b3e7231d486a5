// The error text of a refused request, as PyTorch 2.11 words it.
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
  const Bytes in_pools = refusal.free_in_private_pools;
  std::string text = "CUDA out of memory. Tried to allocate " + in_units(refusal.tried) + ". " +
                     device + " has a total capacity of " + in_units(refusal.capacity) +
                     " of which " + in_units(refusal.free) + " is free. ";
  if (refusal.limit) text += in_units(*refusal.limit) + " allowed; ";
  text += "Of the allocated memory " + in_units(refusal.allocated + in_pools) +
          " is allocated by PyTorch, ";
  if (in_pools.count > 0)
    text += "with " + in_units(in_pools) + " allocated in private pools (e.g., CUDA Graphs), ";
  text += "and " + in_units(refusal.reserved - refusal.allocated - in_pools) +
          " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
          "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
          "See documentation for Memory Management  "
          "(https://docs.pytorch.org/docs/stable/notes/"
          "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
  return text;
}

}  // namespace headroom::allocator
