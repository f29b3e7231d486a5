// The value that an unknown number reads as on a shape-only card: one consistent zero. A boolean,
// an integer or a single floating-point number that an operator makes of unknown ones is what the
// CPU's kernel makes of zeros: isfinite(unknown) is true, allclose of two unknown tensors too, and
// `unfinished & ~stopped` ends where the known length does. Larger floating-point results are zero
// again, except few that where() chooses; so is a single one that zeros make infinite or NaN
// (log(0)).
//
// A block keeps these values as Block::reads: all of them where it is small, one element where a
// large mask is the same everywhere; a block without `reads` reads as zeros. Shapes never depend on
// them: an operator whose results' shapes depend on unknown values is still refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace headroom::sim::detail {

// A CPU tensor of the values that the tensor reads as; its true values where they are known. It
// owns nothing.
[[nodiscard]] at::Tensor as_read(const at::Tensor& tensor);
[[nodiscard]] bool reads_equal(const at::Tensor& one, const at::Tensor& other);

// True if its storage holds few values, so that all of them can be kept.
[[nodiscard]] bool keeps_reads(const at::Tensor& tensor);
// From here on it reads as zeros.
void forget_reads(const at::Tensor& tensor);
// After `to` has been forgotten and overwritten by `from`.
void copy_reads(const at::Tensor& from, const at::Tensor& to);
// The tensor was overwritten by unknown values. Floating-point data of a computing run stays.
// `still_read`: it reads as its old values.
void forget(const at::Tensor& tensor, bool still_read = false);

// ---- For operators over such tensors (dispatch/read_results.h) ----

// Large masks: one element stands for all.
[[nodiscard]] bool reads_alike(const at::Tensor& tensor);
[[nodiscard]] bool keeps_one(const at::Tensor& tensor);
// One element in place of all, where all are alike. std::nullopt if they may differ.
[[nodiscard]] std::optional<at::Tensor> one_of(const at::Tensor& tensor);
// All values that a small storage reads as, to write into.
[[nodiscard]] at::Tensor room_for_reads(const at::Tensor& tensor);
// `to` reads as `from`, which the CPU's kernel computed.
void keep_reads(const at::Tensor& from, const at::Tensor& to);
// A single floating-point number that is infinite or NaN becomes zero.
void make_finite(const at::Tensor& tensor);

}  // namespace headroom::sim::detail
