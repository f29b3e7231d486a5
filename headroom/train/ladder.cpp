#include "headroom/train/ladder.h"

#include <algorithm>
#include <string>

#include "headroom/base/error.h"

namespace headroom::train {

Ladder::Ladder(const LadderOptions& options) : options_(options) {
  if (options.min_micro_batch < 1)
    throw UsageError(expectation("Ladder", "a least micro-batch of 1 or more",
                                 std::to_string(options.min_micro_batch), "1"));
  if (options.max_retries < 0)
    throw UsageError(expectation("Ladder", "0 retries or more", std::to_string(options.max_retries), "3"));
}

std::optional<Ladder::Move> Ladder::next(const Plan& plan, std::int64_t rows) {
  if (repeated_ != plan) {
    repeated_ = plan;
    return Move{Event::Kind::retry, plan};
  }
  if (changes_ == options_.max_retries) return {};
  const std::int64_t now = plan.micro_batch == 0 ? rows : std::min(plan.micro_batch, rows);
  if (now <= options_.min_micro_batch) return {};
  ++changes_;
  const bool is_last = changes_ == options_.max_retries;
  Plan smaller = plan;
  smaller.micro_batch = is_last ? options_.min_micro_batch : std::max(now / 2, options_.min_micro_batch);
  return Move{Event::Kind::shrink, smaller};
}

void Ladder::end_step() {
  repeated_.reset();
  changes_ = 0;
}

}  // namespace headroom::train
