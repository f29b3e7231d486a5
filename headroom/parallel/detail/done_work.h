// Work that has ended, with its results; and what both backends do with lists of tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace headroom::parallel::detail {

using Tensors = std::vector<at::Tensor>;

[[nodiscard]] c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, Tensors results = {});
[[nodiscard]] c10::intrusive_ptr<c10d::Work> done(c10d::OpType type,
                                                  const std::vector<Tensors>& results);

// A future that already has them.
[[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> ready(const Tensors& results);

// Takes what NCCL takes for a list of tensors of the same size, and gives it back.
// Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, newLikeFlat in allgather and
// reduce_scatter.
void flatten_as_nccl_does(const Tensors& list);

// The part of each rank, along the first dimension; of `sizes`, where they differ.
[[nodiscard]] Tensors parts(const at::Tensor& whole, int ranks,
                            const std::vector<std::int64_t>& sizes = {});

}  // namespace headroom::parallel::detail
