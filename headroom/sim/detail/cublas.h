// cuBLAS's handles as PyTorch has them: each thread holds one a card from its first matrix product
// on, and gives it back to a pool when it ends, where the next thread finds it. Workspaces belong
// to a handle and a stream, so a new thread that finds an old handle needs no new workspace.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp, aten/src/ATen/cuda/detail/DeviceThreadHandles.h.
#pragma once

#include <optional>

#include "headroom/base/bytes.h"

namespace headroom::sim::detail {

// The number of this thread's handle for a card.
[[nodiscard]] int cublas_handle(int card);

// What CUBLAS_WORKSPACE_CONFIG asks for (":4096:2:16:8": KiB and how many); nothing: it was
// not set when this was first asked.
[[nodiscard]] std::optional<Bytes> cublas_workspace_by_environment();

}  // namespace headroom::sim::detail
