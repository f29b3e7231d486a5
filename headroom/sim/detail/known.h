// Values that a shape-only card knows all the same: of small tensors - masks, positions, lengths,
// counters, schedules - as far as a program made them, or brought them, from others that are known.
// What it decides by them is then as on a real card; all else reads as zero (unknown.h).
//
// A tensor is known if its storage has data, but for floating numbers of a computing run. Whole
// numbers and booleans of the host are known up to kMostKnownFromHost, and what follows from them
// alone is. Random numbers are not known, but few whole ones, nor what depends on large tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "headroom/sim/detail/call.h"

namespace headroom::sim::detail {

// So few numbers that they are worth the host's memory and time.
[[nodiscard]] bool is_small(const at::Tensor& tensor);
[[nodiscard]] bool covers_its_storage(const at::Tensor& tensor);
// Whether its values may be known.
[[nodiscard]] bool is_knowable(const at::Tensor& tensor);
[[nodiscard]] bool is_known(const at::Tensor& tensor);
// Room for the values of a tensor whose every element is about to be written; false if it is not
// knowable, or only a part of what lies there and the rest is unknown. What has not been written
// yet is nothing that a program could go by, and becomes zero. `from_host`: up to
// kMostKnownFromHost.
bool make_room_for_values(const at::Tensor& tensor, bool from_host = false);
// What is written there now is not known. Floating numbers of a computing run stay. `still_read`:
// it reads as what it was (unknown.h).
void forget(const at::Tensor& tensor, bool still_read = false);

// Whether all that the operator reads is known, or enough of it, so that the CPU's kernel can tell
// its results.
[[nodiscard]] bool knows_arguments(Call& call);
// Before it runs: room in those that it overwrites.
void prepare_overwritten(const Call& call);
// After a run without values: what it wrote into is not known any more. `still_read`: until
// read_results (unknown.h) it reads as what it was.
void forget_written(const Call& call, bool still_read);
// The results are few numbers, too.
[[nodiscard]] bool has_knowable_results(const Call& call);

}  // namespace headroom::sim::detail
