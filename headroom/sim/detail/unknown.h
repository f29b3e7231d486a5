// What a value reads as that a shape-only card does not know: an unknown number is one consistent
// zero. A truth value, a whole number or a single floating number that an operator makes of unknown
// ones is what the CPU's kernel makes of zeros: isfinite(unknown) is true, allclose of two unknown
// tensors too, and `unfinished & ~stopped` ends where the known length does. Larger results of
// floating numbers are zero again, but for few that where() chooses; so is a single one that zeros
// make infinite or NaN (log(0)).
//
// A block keeps what it reads as (Block::reads), all of it where it is small, one element where a
// large mask is the same everywhere; without it, zeros. Shapes never depend on it: an operator
// whose results' shapes depend on unknown values is refused as before.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "headroom/sim/detail/call.h"

namespace headroom::sim::detail {

// A CPU tensor with what it reads as; the values where they are known. It owns nothing.
[[nodiscard]] at::Tensor as_read(const at::Tensor& tensor);
[[nodiscard]] bool reads_equal(const at::Tensor& one, const at::Tensor& other);

// Whether few values lie in its storage, so that all of them can be kept.
[[nodiscard]] bool keeps_reads(const at::Tensor& tensor);
// From here on it reads as zeros.
void forget_reads(const at::Tensor& tensor);
// After `to` has been forgotten and overwritten by `from`.
void copy_reads(const at::Tensor& from, const at::Tensor& to);

// Whether the results of an operator, whose arguments are on the stack, may read as something else
// than zeros.
[[nodiscard]] bool may_read(const Call& call);
// After its plan, with the results on the stack: what they read as, and what it wrote into.
void read_results(Call& call, std::vector<c10::IValue> arguments);

}  // namespace headroom::sim::detail
