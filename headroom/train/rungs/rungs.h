// The rungs of the ladder (../ladder.h). Each answers with the plan that it would try, or with
// std::nullopt if it cannot help.
#pragma once

#include <optional>
#include <vector>

#include "headroom/train/ladder.h"

namespace headroom::train::rungs {

struct Situation {
  const Failure& failure;
  const LadderOptions& options;
  const Prices* prices;     // null if not known
  bool is_repeated;         // this plan has failed twice for this step
  bool leaves_room = true;  // of the card, as the options say
};

[[nodiscard]] std::optional<Plan> same_again(const Situation& now);
[[nodiscard]] std::optional<Plan> allocator(const Situation& now);
[[nodiscard]] std::optional<Plan> micro_batch(const Situation& now);
[[nodiscard]] std::optional<Plan> technique(const Situation& now);
// After all others: what changes the result and stays (plan/technique.h).
[[nodiscard]] std::optional<Plan> lasting(const Situation& now);
[[nodiscard]] std::optional<Plan> device(const Situation& now);

// The memory to plan with: as much as the process can have now, and less than the failed plan
// needs.
[[nodiscard]] std::optional<PerStage> card_for_less(const Situation& now);
// The plan with the next technique of the ladder; std::nullopt if it has them all.
[[nodiscard]] std::optional<Plan> with_next_technique(const Plan& plan,
                                                      const LadderOptions& options);
// The same for techniques that last.
[[nodiscard]] std::optional<Plan> with_next_lasting(const Plan& plan, const LadderOptions& options);

// The plan and all that the ladder can make of it with techniques: what lasts comes last.
[[nodiscard]] std::vector<Plan> forms_of(const Plan& plan, const LadderOptions& options);

// The sizes of the parts that the ladder may cut a batch into.
[[nodiscard]] PartLimits limits_of(const LadderOptions& options);
// The plan with the largest micro-batch, of at most this many rows, that cards of this size serve
// and the host, which gets the data that the plan moves there. std::nullopt if none fits, or prices
// are not known.
[[nodiscard]] std::optional<Plan> largest_fitting(Plan plan, std::int64_t most, const Work& work,
                                                  const PerStage& cards,
                                                  const LadderOptions& options,
                                                  const Prices& prices);

// False if the host is known to have no room for the data that the plan moves to it.
[[nodiscard]] bool host_has_room(const Plan& plan, const Work& work, const LadderOptions& options,
                                 const Prices* prices);

}  // namespace headroom::train::rungs
