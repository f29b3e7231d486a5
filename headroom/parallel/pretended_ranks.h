// Runs one rank of `size` in a process without the others, to find the memory that the rank needs
// on its card.
//
// Its collectives are answered as if every other rank held the same tensors: a sum is `size` times
// this rank's tensor, a gather is `size` copies of it. recv receives nothing and leaves its tensor
// unchanged. For tensors on simulated cards and on the host.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace headroom::parallel {

[[nodiscard]] c10::intrusive_ptr<c10d::Backend> pretended_ranks(int rank, int size);

}  // namespace headroom::parallel
