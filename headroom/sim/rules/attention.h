// What the attention kernels of a chip are given and need, for those who choose and those who run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::sim::rules {

// 86 for compute capability 8.6. A card without a profile counts as 8.0: an Ampere chip takes every
// kernel but cuDNN's by default, and newer consumer chips choose alike.
[[nodiscard]] int chip_of_running_card();

// How the CPU would do the same call, which a fused kernel's arguments no longer show: noted where
// the call comes in, followed where its data is made.
struct AsOnCpu {
  bool known = false;
  bool by_math = false;       // with dropout, or a mask that needs a gradient
  std::int64_t head_dim = 0;  // before it was padded to a multiple of 8; 0: as it is
};

class AsOnCpuScope {
 public:
  explicit AsOnCpuScope(const AsOnCpu& note) : before_(current()) { current() = note; }
  ~AsOnCpuScope() { current() = before_; }
  AsOnCpuScope(const AsOnCpuScope&) = delete;
  AsOnCpuScope& operator=(const AsOnCpuScope&) = delete;
  [[nodiscard]] static AsOnCpu& current();

 private:
  AsOnCpu before_;
};

struct EfficientCall {
  at::ScalarType type;
  int chip = 80;
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  bool dropout = false;
  bool deterministic = false;
};
// Memory-efficient attention: whether forward accumulates in a float buffer of the output's shape.
[[nodiscard]] bool efficient_accumulates(const EfficientCall& call);
// Bytes that backward works in.
[[nodiscard]] std::int64_t efficient_workspace(const EfficientCall& call);
// Whether backward's kernel computes delta itself, or tensor operators do before it.
[[nodiscard]] bool efficient_computes_delta(const EfficientCall& call);

}  // namespace headroom::sim::rules
