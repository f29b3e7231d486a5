// Makes `sim` known to LibTorch, in the order it needs.
#pragma once

#include <c10/core/Device.h>

#include <optional>

namespace headroom::sim::detail {

// Once a process; throws UnavailableError in a process that has used CUDA, or whose PrivateUse1 is
// somebody else's.
void load_backend();
// One that this process has used; nothing: none, or it may simulate all the same.
[[nodiscard]] std::optional<c10::DeviceIndex> cuda_device_in_use();
// Whether load_backend() would end CUDA's use here: there are GPUs, and `sim` is not yet known.
[[nodiscard]] bool takes_the_place_of_cuda();
// In a forked child: CUDA lives in no fork, and LibTorch is not to look for it there.
void forget_cuda() noexcept;

}  // namespace headroom::sim::detail
