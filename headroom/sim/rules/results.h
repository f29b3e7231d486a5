// How CUDA lays out results, for rules to say in one line. Everything here takes the card's tensors
// or Meta tensors (the shapes of an out= are asked for with those) and never looks at data.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
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
using OptionalTensor = std::optional<Tensor>;
using OptionalType = std::optional<ScalarType>;
using Sizes = std::vector<std::int64_t>;

// Whose sizes the card follows on which an operator runs now.
[[nodiscard]] Rules rules_now();
[[nodiscard]] inline bool follows_cuda() {
  return rules_now() == Rules::cuda;
}

// ---- Results ----

// What an elementwise operator gives for these: broadcast, in the memory format TensorIterator
// would choose. No type: the inputs' common one.
[[nodiscard]] Tensor elementwise(std::initializer_list<Tensor> inputs, OptionalType type = {});

// As at::empty_like: the sizes, and the strides of what is dense.
[[nodiscard]] Tensor like(const Tensor& x, OptionalType type = {});

// Without padding, in this order of dimensions, of the type of `like` or another.
[[nodiscard]] Tensor contiguous(IntArrayRef sizes, const Tensor& like, OptionalType type = {});
[[nodiscard]] Tensor contiguous(const Tensor& like, OptionalType type = {});
[[nodiscard]] Tensor in_format(IntArrayRef sizes, const Tensor& like, MemoryFormat format);

// One number.
[[nodiscard]] Tensor scalar(const Tensor& like, OptionalType type = {});

// Not there, where an operator is not asked for a result.
[[nodiscard]] Tensor contiguous_if(bool wanted, const OptionalTensor& like);

// ---- Temporaries: kept in a variable for as long as CUDA's kernel keeps them ----

// As x.contiguous(): x itself, or memory for a copy.
[[nodiscard]] Tensor as_contiguous(const Tensor& x, MemoryFormat format = MemoryFormat::Contiguous);

// ---- Sizes and types ----

// The last dimensions replaced by these.
[[nodiscard]] Sizes with_last(IntArrayRef sizes, IntArrayRef last);

// The i-th of a parameter for each spatial dimension, which may be given once for all.
[[nodiscard]] inline std::int64_t each(IntArrayRef values, std::size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

[[nodiscard]] inline bool is_defined(const OptionalTensor& x) {
  return x.has_value() && x->defined();
}

// The type that sums of this type are kept in: float for half and bfloat16.
[[nodiscard]] ScalarType accumulation_type(ScalarType type);

}  // namespace headroom::sim::rules
