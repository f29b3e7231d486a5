// Changes of plan between steps, without a failure: smaller before a step that would not fit,
// faster when there is room again.
//
// - A step that is known to need more than the card has for it now begins with the fastest plan
//   that fits. If the batch is unusual (longer rows than in most of the last steps), the plan is
//   for that batch alone.
// - After `grow_after` steps without trouble, a faster plan comes back, up to the wish: one that is
//   known to fit, or the next larger one where prices are not known. Where that fails, the next
//   attempt waits twice as long.
// - If the allocator had to empty its cache in three steps one after another, the plan gets
//   smaller: such steps are slow, and the next request may fail.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "headroom/train/ladder.h"

namespace headroom::train::detail {

// The plan with parts of about three quarters, as far as the ladder allows.
[[nodiscard]] Plan smaller_parts(const Ladder& ladder, const Plan& now, const Work& work);

class Adaptation {
 public:
  // The ladder and the prices (null if not known) must outlive it.
  Adaptation(Plan wish, std::int64_t grow_after, const Ladder& ladder, const Prices* prices)
      : wish_(std::move(wish)),
        grow_after_(grow_after),
        wait_(grow_after),
        ladder_(ladder),
        prices_(prices) {}

  // For the first step: a plan that fits, or the wish if none is known to fit.
  [[nodiscard]] Plan first(const Work& work, const PerStage& cards) const;
  // Before each further step with this plan. `cards`: the memory that this process can have on them
  // now.
  [[nodiscard]] std::optional<Ladder::Move> before(const Plan& now, const Work& work,
                                                   const std::optional<PerStage>& cards);
  // After a failure, and the move that the ladder made.
  void failed(const Plan& plan, const Work& work);
  // After a commit; `retries`: requests that the allocator served only after it emptied its cache.
  // Returns a smaller plan for the next step if it thrashes.
  [[nodiscard]] std::optional<Ladder::Move> after(const Plan& now, const Work& work,
                                                  std::int64_t retries);

 private:
  [[nodiscard]] bool is_unusual(const Work& work) const;
  [[nodiscard]] std::optional<Ladder::Move> back_to_usual(const Plan& now, const Work& work);
  [[nodiscard]] std::optional<Ladder::Move> smaller(const Plan& now, const Work& work,
                                                    const PerStage& cards);
  [[nodiscard]] std::optional<Ladder::Move> larger(const Plan& now, const Work& work,
                                                   const std::optional<PerStage>& cards);

  Plan wish_;
  std::int64_t grow_after_, wait_;
  const Ladder& ladder_;
  const Prices* prices_;
  std::optional<Plan> usual_;  // while the plan is for an unusual batch
  std::deque<double> scales_;  // of the last steps
  std::int64_t clean_ = 0;     // steps without trouble, one after another
  // Steps; std::nullopt if there was no growth, or it has been counted.
  std::optional<std::int64_t> since_growth_;
  int thrashing_ = 0;  // steps, one after another
};

}  // namespace headroom::train::detail
