// The data of an operator's results in compute mode. The CPU's kernel runs on the host memory of
// the card's tensors; its results are adopted where possible, else copied.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "headroom/sim/dispatch/call.h"
#include "headroom/sim/dispatch/plan.h"

namespace headroom::sim::detail {

// Memory that an operator may write into, and the bytes it had before the plan.
using Outs = std::vector<std::pair<c10::Storage, std::size_t>>;
[[nodiscard]] Outs outs_of(const Call& call);

// The stack holds the planned results; the kernel runs on the arguments and fills them. Throws
// InternalError if it computes another shape or type than planned.
void fill(Call& call, std::vector<c10::IValue> arguments, const Plan& plan, const Outs& outs);

// Runs the CPU's kernel, or the table's fill, on a stack of CPU tensors.
void run_kernel(Call& call);

// For an operator without a plan: the kernel makes the results, from the arguments' data in compute
// mode, else from zeros.
void run_unplanned(Call& call);

}  // namespace headroom::sim::detail
