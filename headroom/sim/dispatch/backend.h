// Registers `sim` with LibTorch, in the order it needs.
#pragma once

#include <c10/core/Device.h>

#include <optional>

namespace headroom::sim::detail {

// Registers once per process. Throws UnavailableError in a process that has used CUDA, or whose
// PrivateUse1 belongs to another backend.
void load_backend();
// A CUDA device that this process has used. std::nullopt if there is none, or if the process may
// simulate all the same.
[[nodiscard]] std::optional<c10::DeviceIndex> cuda_device_in_use();
// True if load_backend() would end CUDA's use here: there are GPUs, and `sim` is not yet known.
[[nodiscard]] bool takes_the_place_of_cuda();
// For a forked child, where CUDA does not work: stops LibTorch from using it.
void forget_cuda() noexcept;

}  // namespace headroom::sim::detail
