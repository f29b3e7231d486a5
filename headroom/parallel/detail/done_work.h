// Completed work with its results, and list helpers that both backends use.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace headroom::parallel::detail {

using Tensors = std::vector<at::Tensor>;

[[nodiscard]] c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, Tensors results = {});
[[nodiscard]] c10::intrusive_ptr<c10d::Work> done(c10d::OpType type,
                                                  const std::vector<Tensors>& results);

// A completed future that holds these results.
[[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> ready(const Tensors& results);

// Allocates the flat buffer that NCCL allocates for a list of tensors of the same size, and frees
// it.
// Source: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, newLikeFlat in allgather and
// reduce_scatter.
void flatten_as_nccl_does(const Tensors& list);

// Splits along the first dimension into one part per rank, of these `sizes` if any are given.
[[nodiscard]] Tensors parts(const at::Tensor& whole, int ranks,
                            const std::vector<std::int64_t>& sizes = {});

}  // namespace headroom::parallel::detail
