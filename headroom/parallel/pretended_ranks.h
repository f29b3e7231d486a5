// One rank of `size`, in a process of its own without any other: what it needs of its card can be
// known without starting the rest.
//
// Its collectives are answered as if every other rank held what this one holds: a sum is `size`
// times it, a gathering `size` copies of it. Nothing ever arrives by recv: the tensor stays as it
// is. For tensors on simulated cards and on the host.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace headroom::parallel {

[[nodiscard]] c10::intrusive_ptr<c10d::Backend> pretended_ranks(int rank, int size);

}  // namespace headroom::parallel
