// Shapes of results that are reduced over dimensions.
#pragma once

#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {

// The sizes after these dimensions are reduced; none given means all.
[[nodiscard]] Sizes reduced(const Tensor& x, OptionalIntArrayRef dims, bool keep);
[[nodiscard]] Sizes reduced(const Tensor& x, std::int64_t dim, bool keep);

}  // namespace headroom::sim::rules
