// The data of the fused attention kernels: what the CPU computes for the same call.
#pragma once

#include "headroom/sim/rules/layout.h"
#include "headroom/sim/rules/replay.h"
#include "headroom/sim/rules/table.h"

namespace headroom::sim::rules {

// What AsOnCpu says of the call, as a number that goes along with the random seed.
[[nodiscard]] std::uint64_t packed_note(const Tensor& q, double dropout);

void add_attention_fills(Table& table);

}  // namespace headroom::sim::rules
