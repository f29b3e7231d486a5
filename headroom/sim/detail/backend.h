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
// In a forked child whose parent may have used CUDA: the child cannot.
void allow_beside_cuda() noexcept;

}  // namespace headroom::sim::detail
