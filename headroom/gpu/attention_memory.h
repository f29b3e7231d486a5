// The memory that PyTorch's fused attention kernels need on a chip besides their results.
#pragma once

#include <cstdint>

#include "headroom/gpu/profile.h"

namespace headroom::gpu {

// 86 for compute capability 8.6. A card without a profile counts as 80: an Ampere chip takes every
// kernel but cuDNN's by default, and newer consumer chips choose alike.
[[nodiscard]] int chip_number(const DeviceProfile* profile);

// Logsumexp of each query, which the backward pass reads: for this many queries.
[[nodiscard]] std::int64_t efficient_statistics(std::int64_t queries);

// A call of the memory-efficient kernels, CUTLASS's.
struct EfficientCall {
  bool half = false;
  int chip = 80;
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  bool dropout = false;
  bool deterministic = false;
};
// True if the forward pass accumulates in a float buffer of the output's shape.
[[nodiscard]] bool efficient_accumulates(const EfficientCall& call);
// Bytes that the backward pass works in.
[[nodiscard]] std::int64_t efficient_workspace(const EfficientCall& call);
// True if the backward pass's kernel computes delta itself; else tensor operators do before it.
[[nodiscard]] bool efficient_computes_delta(const EfficientCall& call);
// A mask's rows are aligned to this many elements.
[[nodiscard]] std::int64_t efficient_mask_row(std::int64_t keys);

// FlashAttention's backward pass sums in float, for this many queries of heads this wide.
struct FlashTile {
  std::int64_t queries, head_dim;
};
[[nodiscard]] FlashTile flash_tile(std::int64_t queries, std::int64_t head_dim);

}  // namespace headroom::gpu
