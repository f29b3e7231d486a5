// cuBLAS's workspaces, which PyTorch allocates at the first matrix product of a handle and a
// stream.
//
// Handles as PyTorch has them: a thread takes one per card at its first matrix product, and returns
// it to a pool when it ends. A new thread that gets an old handle needs no new workspace.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp, aten/src/ATen/cuda/detail/DeviceThreadHandles.h.
#pragma once

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

// Takes cuBLAS's workspace for this thread's handle and its current stream, if it is the first
// matrix product there.
void use_cublas(Card& card);
// And cuBLASLt's: for products with a bias.
void use_cublaslt(Card& card);

}  // namespace headroom::sim::detail
