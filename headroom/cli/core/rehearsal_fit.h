// The largest batch of a training script that fits its cards, by a few rehearsals.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::cli {

struct RehearsedBatch {
  long long batch = 0;
  bool fits = false;
  Bytes needs;  // of the card with the least memory left, on a card without limit
};

struct LargestBatch {
  std::optional<long long> batch;  // empty: not even a batch of 1 fits
  bool is_proven = false;          // the next larger one was rehearsed and does not fit
  std::vector<RehearsedBatch> rehearsed;
};

inline constexpr int kMostRehearsals = 6;

// Searches from `first` on. `rehearse` runs one batch; `room` is the memory of the card that it is
// for. The need grows nearly as a straight line with the batch, so two batches predict the others.
[[nodiscard]] LargestBatch find_largest_batch(
    long long first, Bytes room, const std::function<RehearsedBatch(long long)>& rehearse);

}  // namespace headroom::cli
