#include "headroom/allocator/settings.h"
#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

// The allocator gives back what it can before it refuses a request. If what was free and what it
// still had would have sufficed together, the rest lay in pieces between living tensors. Expandable
// segments have no such pieces.
std::optional<Plan> allocator(const Situation& now) {
  const Failure& failure = now.failure;
  if (!now.options.allocator || !failure.plan.allocator.empty()) return {};
  if (!failure.asked || !failure.free || !failure.cached) return {};
  const bool was_in_pieces =
      *failure.asked > *failure.free && *failure.asked <= *failure.free + *failure.cached;
  if (!was_in_pieces) return {};
  Plan plan = failure.plan;
  plan.allocator = "expandable_segments:True";
  const bool has_room = now.prices == nullptr || !failure.card ||
                        now.prices->is_served(plan, failure.work, *failure.card).value_or(true);
  return has_room ? std::optional(plan) : std::nullopt;
}

}  // namespace headroom::train::rungs
