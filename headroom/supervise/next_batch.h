// Chooses the batch to try after an out-of-memory. The effective batch (batch x accumulation) stays
// the same; without an accumulation it becomes smaller.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/supervise/try.h"

namespace headroom::supervise {

struct NextBatch {
  std::optional<long long> batch;         // std::nullopt if no smaller one is possible
  std::optional<long long> accumulation;  // std::nullopt also without an accumulation
  std::string why;                        // one sentence, with or without a batch
};

// `tries` in their order, each with its batch, the last one out of memory. `first_batch` and
// `first_accumulation` are the user's own; without an accumulation `why` speaks of the batch alone.
// Never at or above a batch that ran out under a limit that was not smaller than the last one's.
// From 4096 down to 1 in at most 8 tries, whatever the figures say. Throws UsageError for values
// below 1 or above a thousand million.
[[nodiscard]] NextBatch next_batch(const std::vector<Try>& tries, long long first_batch,
                                   std::optional<long long> first_accumulation,
                                   long long min_batch);

// The largest batch up to `most` that keeps the same effective batch: to begin with a batch that
// worked before. Has no batch if that is below `min_batch`.
[[nodiscard]] NextBatch batch_up_to(long long most, long long first_batch,
                                    long long first_accumulation, long long min_batch);

}  // namespace headroom::supervise
