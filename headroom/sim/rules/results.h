// CUDA's layouts of results, each in one call. Every function takes the card's tensors, or Meta
// tensors (for the shapes of an out=), and never looks at data.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "headroom/sim/card.h"

namespace headroom::sim::rules {

using at::IntArrayRef;
using at::MemoryFormat;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorList;
using Optional = std::optional<Tensor>;
using OptionalType = std::optional<ScalarType>;
using Sizes = std::vector<std::int64_t>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// The rule set of the card that runs an operator now. tests/sim/difference_rows.cpp has a row for
// every rule that asks.
[[nodiscard]] Rules rules_now();
[[nodiscard]] inline bool follows_cuda() {
  return rules_now() == Rules::cuda;
}

// ---- Results ----

// The result of an elementwise operator over these inputs: broadcast, in the memory format that
// TensorIterator would choose. Without a type: the inputs' common one.
[[nodiscard]] Tensor elementwise(TensorList inputs, OptionalType type = {});

// Like at::empty_like: the same sizes, and the strides of a dense tensor.
[[nodiscard]] Tensor like(const Tensor& x, OptionalType type = {});

// Without padding, in this order of dimensions, of `like`'s type or another.
[[nodiscard]] Tensor contiguous(IntArrayRef sizes, const Tensor& like, OptionalType type = {});
[[nodiscard]] Tensor contiguous(const Tensor& like, OptionalType type = {});
[[nodiscard]] Tensor in_format(IntArrayRef sizes, const Tensor& like, MemoryFormat format);

// One number.
[[nodiscard]] Tensor scalar(const Tensor& like, OptionalType type = {});

// Undefined if the operator is not asked for this result.
[[nodiscard]] Tensor contiguous_if(bool wanted, const Optional& like);

// ---- Temporaries: kept in a variable for as long as CUDA's kernel keeps them ----

// x itself if it is contiguous, else memory for a copy.
[[nodiscard]] Tensor as_contiguous(const Tensor& x, MemoryFormat format = MemoryFormat::Contiguous);

// ---- Sizes and types ----

// Replaces the last dimensions by these.
[[nodiscard]] Sizes with_last(IntArrayRef sizes, IntArrayRef last);

// The parameter for spatial dimension i. One value may stand for all dimensions.
[[nodiscard]] inline std::int64_t each(IntArrayRef values, std::size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

[[nodiscard]] inline bool is_defined(const Optional& x) {
  return x.has_value() && x->defined();
}
[[nodiscard]] inline Tensor or_none(const Optional& x) {
  return x.value_or(Tensor());
}

// The type in which sums of this type are kept: float for half and bfloat16.
[[nodiscard]] ScalarType accumulation_type(ScalarType type);

// The running card's profile; null if it has none.
[[nodiscard]] const gpu::DeviceProfile* running_profile();

}  // namespace headroom::sim::rules
