// Which plan to try after an out-of-memory: the cheapest that may help, one rung after another.
//
// 1. The same plan again, once: what failed may have been a neighbour's short peak, or memory that
//    only another thread still held.
// 2. A smaller micro-batch, never below the least one.
//
// A plan that failed at a size of the batch is not tried again at that size. Retries of the same
// plan are free; of the others a step has `max_retries`, and the last one goes to the heaviest plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/train/event.h"
#include "headroom/train/plan.h"

namespace headroom::train {

struct LadderOptions {
  std::int64_t min_micro_batch = 1;
  int max_retries = 3;  // of one step, with another plan
};

class Ladder {
 public:
  explicit Ladder(const LadderOptions& options);  // throws UsageError

  struct Move {
    Event::Kind kind = Event::Kind::retry;
    Plan plan;
  };
  // After `plan` failed for a batch of these rows. Nothing: no plan is left.
  [[nodiscard]] std::optional<Move> next(const Plan& plan, std::int64_t rows);
  // The step has ended, committed or not.
  void end_step();

 private:
  LadderOptions options_;
  std::optional<Plan> repeated_;  // in this step
  int changes_ = 0;               // of the plan, in this step
};

}  // namespace headroom::train
