// The data of the fused attention kernels: the CPU's numbers for the same call.
#pragma once

#include "headroom/sim/rules/cpu_function.h"
#include "headroom/sim/rules/results.h"
#include "headroom/sim/rules/table.h"

namespace headroom::sim::rules {

// The CPU's way to compute the same call, which a fused kernel's arguments no longer show.
// dispatch/attention_route.cpp notes it where the call arrives; the fill follows it.
struct AsOnCpu {
  bool known = false;
  bool by_math = false;       // with dropout, or a mask that needs a gradient
  std::int64_t head_dim = 0;  // before padding to a multiple of 8; 0: not padded
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

// The note of AsOnCpu as a number that goes along with the random seed.
[[nodiscard]] std::uint64_t packed_note(const Tensor& q, double dropout);

using FusedResults =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

void add_attention_fills(Table& table);

}  // namespace headroom::sim::rules
