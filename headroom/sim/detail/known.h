// Values that a shape-only card knows all the same: of small tensors - masks, positions, lengths,
// counters, schedules - as far as a program made them, or brought them, from others that are known.
// What it decides by them is then as on a real card; all else reads as zero.
//
// A tensor is known if its storage has data, but for floating numbers of a computing run. Random
// numbers are not known, nor what depends on large tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "headroom/sim/detail/call.h"

namespace headroom::sim::detail {

// So few numbers that they are worth the host's memory and time.
[[nodiscard]] bool is_knowable(const at::Tensor& tensor);
[[nodiscard]] bool is_known(const at::Tensor& tensor);
// Room for the values of a tensor whose every element is about to be written; false if it is not
// knowable, or only a part of what lies there and the rest is unknown. What nobody has written yet
// is nothing that a program could go by, and becomes zero.
bool make_room_for_values(const at::Tensor& tensor);
// Somebody writes there what is not known. Floating numbers of a computing run stay.
void forget(const at::Tensor& tensor);

// Whether all that the operator reads is known, so that the CPU's kernel can tell its results.
[[nodiscard]] bool knows_arguments(const Call& call);
// Before it runs: room in those that it overwrites.
void prepare_overwritten(const Call& call);
// After a run without values: what it wrote into is not known any more.
void forget_written(const Call& call);
// The results are few numbers, too.
[[nodiscard]] bool has_knowable_results(const Call& call);

}  // namespace headroom::sim::detail
