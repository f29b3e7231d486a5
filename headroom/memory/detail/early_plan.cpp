#include "headroom/memory/detail/early_plan.h"

#include <algorithm>

namespace headroom::memory::detail {

bool EarlyPlan::leaves(const Place& place) {
  if (place.number == 0) saved_.clear();
  saved_.push_back(place);
  return early_.contains(place);
}

// A refusal in spite of a plan comes of memory that lies in pieces: more is spared then.
std::optional<Bytes> EarlyPlan::end_step(Bytes capacity) {
  const Bytes needed = std::exchange(needed_, Bytes{}), refused = std::exchange(refused_, Bytes{});
  if (spare_ == Bytes{}) spare_ = Bytes{capacity.count / 16};
  if (refused > Bytes{} && has_plan_) spare_ += std::max(refused, Bytes{capacity.count / 64});
  const bool needs_less = needed > Bytes{} && needed + Bytes{capacity.count / 16} < planned_for_;
  if (refused == Bytes{} && !(has_plan_ && needs_less)) return {};
  has_plan_ = true;
  planned_for_ = needed;
  return std::max(Bytes{}, needed + spare_ - capacity);
}

void EarlyPlan::leave_early(Bytes enough) {
  early_.clear();
  std::int64_t rest = enough.count;
  for (const Place& each : saved_)
    if (each.size.count <= rest && movable_.contains(each)) {
      early_.insert(each);
      rest -= each.size.count;
    }
  if (rest <= 0) return;
  const Place* smallest = nullptr;
  for (const Place& each : saved_)
    if (each.size.count >= rest && movable_.contains(each) && !early_.contains(each) &&
        (smallest == nullptr || each.size < smallest->size))
      smallest = &each;
  if (smallest != nullptr) early_.insert(*smallest);
}

}  // namespace headroom::memory::detail
