// Which batch to try after an out-of-memory, so that the effective batch (batch x accumulation)
// stays what it was.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::supervise {

// What one try showed. Memory is of the fullest card (or of the host).
struct Tried {
  long long batch = 1;
  bool out_of_memory = false;
  std::optional<Bytes> peak;   // most the job was seen to use
  std::optional<Bytes> asked;  // what could not be had any more
  std::optional<Bytes> limit;  // what it could have had
};

struct NextBatch {
  std::optional<long long> batch, accumulation;  // empty: no smaller one is possible
  std::string why;                               // one sentence, either way
};

// `tried` in their order, the last one out of memory. `first_batch` and `first_accumulation` are
// the user's own.
[[nodiscard]] NextBatch next_batch(const std::vector<Tried>& tried, long long first_batch,
                                   long long first_accumulation, long long min_batch);

}  // namespace headroom::supervise
