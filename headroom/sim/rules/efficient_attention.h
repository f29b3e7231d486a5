// Memory-efficient attention: the memory that CUTLASS's kernels need on a chip besides their
// results.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::sim::rules {

// The running card's chip, 86 for compute capability 8.6. A card without a profile counts as 8.0:
// an Ampere chip takes every kernel but cuDNN's by default, and newer consumer chips choose alike.
[[nodiscard]] int chip_of_running_card();

struct EfficientCall {
  at::ScalarType type;
  int chip = 80;
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  bool dropout = false;
  bool deterministic = false;
};
// True if forward accumulates in a float buffer of the output's shape.
[[nodiscard]] bool efficient_accumulates(const EfficientCall& call);
// Bytes that backward works in.
[[nodiscard]] std::int64_t efficient_workspace(const EfficientCall& call);
// True if backward's kernel computes delta itself; else tensor operators do before it.
[[nodiscard]] bool efficient_computes_delta(const EfficientCall& call);

}  // namespace headroom::sim::rules
