// Values that a shape-only card knows: those of small tensors (masks, positions, lengths, counters,
// schedules) that the program made, or copied from the host, from other known values. The program's
// decisions by them are then as on a real card; all other values read as zero (reads.h).
//
// A tensor is known if its storage has data, except floating-point data of a computing run.
// Integers and booleans from the host are known up to kMostKnownFromHost, and so are values that
// follow from them alone. Random numbers are unknown, except a few integers; so are values that
// depend on large tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::sim::detail {

// Few enough numbers to be worth the host's memory and time.
[[nodiscard]] bool is_small(const at::Tensor& tensor);
[[nodiscard]] bool covers_its_storage(const at::Tensor& tensor);
// True if the card may keep the tensor's values. `much`: also a large index tensor.
[[nodiscard]] bool is_knowable(const at::Tensor& tensor);
[[nodiscard]] bool is_knowable(const at::Tensor& tensor, bool much);
[[nodiscard]] bool is_known(const at::Tensor& tensor);
// A tensor of the host: known whatever its type, if it is small.
[[nodiscard]] bool is_known_on_host(const at::Tensor& tensor);
// True if overwriting the tensor makes its whole storage known.
[[nodiscard]] bool may_become_known(const at::Tensor& tensor);
// Floating-point data made in compute mode: weights, which no dry run may touch.
[[nodiscard]] bool is_of_computing(const at::Tensor& tensor);

// Gives host memory to a tensor whose elements are all about to be written; false if it is not
// knowable, or only a part of its storage is written and the rest is unknown. Elements that were
// never written become zero. `from_host`: up to kMostKnownFromHost.
bool make_room_for_values(const at::Tensor& tensor, bool from_host = false);

}  // namespace headroom::sim::detail
