// The quantities of a job that can be mapped to a place in its command, and so changed.
#pragma once

namespace headroom::edit {

enum class Quantity { batch, accumulation };
// The largest value of either: the product of two fits into 64 bits.
constexpr long long kMostBatch = 1'000'000'000;

}  // namespace headroom::edit
