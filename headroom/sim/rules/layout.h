// How CUDA lays out results, for rules to say in one line.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>

#include "headroom/sim/card.h"

namespace headroom::sim::rules {

using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorList;

// Whose sizes the card follows on which an operator runs now.
[[nodiscard]] Rules rules_now();

// What an elementwise operator gives for these: broadcast, in the memory format TensorIterator
// would choose. An undefined type: the inputs' common one.
[[nodiscard]] Tensor elementwise(std::initializer_list<Tensor> inputs,
                                 std::optional<ScalarType> type = {});

// A contiguous tensor of this shape, of the type of `like` or another.
[[nodiscard]] Tensor contiguous(IntArrayRef sizes, const Tensor& like,
                                std::optional<ScalarType> type = {});

// The type that sums of this type are kept in: float for half and bfloat16.
[[nodiscard]] ScalarType accumulation_type(ScalarType type);

}  // namespace headroom::sim::rules
