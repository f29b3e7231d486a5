// Makes `sim` known to LibTorch, in the order it needs.
#pragma once

namespace headroom::sim::detail {

// Once a process; throws UnavailableError in a process that has used CUDA, or whose PrivateUse1 is
// somebody else's.
void load_backend();
// In a forked child whose parent may have used CUDA: the child cannot.
void allow_beside_cuda() noexcept;

}  // namespace headroom::sim::detail
