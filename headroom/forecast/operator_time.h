// The time of one operator on a card, by the same roofline as step_time.h: a matrix product takes
// its operations at the card's rate, or its bytes at the card's bandwidth, whichever is longer;
// every other operator takes the bytes that it reads and writes. A kernel takes some microseconds
// at least (step_time.h); an operator of several small ones takes more than this says.
//
//   operator_seconds({.name = "aten::mm", .inputs = {{512, 768}, {768, 3072}},
//                     .output = {512, 3072}, .bytes = 17e6}, gpu::find_card("RTX 4090"));
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headroom/forecast/effort.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::forecast {

using Shape = std::vector<std::int64_t>;

struct OperatorWork {
  std::string_view name;           // "aten::addmm"
  std::vector<Shape> inputs = {};  // its tensors, in the schema's order; others are empty
  Shape output = {};               // its first result
  double bytes = 0;                // read and written
  Arithmetic arithmetic = Arithmetic::float32;
};

// Multiplications and additions of a matrix product, a convolution or an attention; 0 for others.
// A causal attention counts as a full one.
[[nodiscard]] double product_operations(const OperatorWork& work);

// Null `card`: an A100 80GB.
[[nodiscard]] double operator_seconds(const OperatorWork& work, const gpu::CatalogueCard* card);

}  // namespace headroom::forecast
