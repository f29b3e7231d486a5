// What a rehearsal says of its cards: which is the tightest, whether the script fits, and the
// answer that is printed like an estimate's. The card of a RehearsedCard is that of its index.
#pragma once

#include <vector>

#include "headroom/cli/core/answer.h"
#include "headroom/cli/core/rehearsal.h"

namespace headroom::cli {

// The largest process on the card with the least memory left. There must be one.
[[nodiscard]] const RehearsedCard& tightest(const Rehearsal& rehearsal,
                                            const std::vector<gpu::SimulatedCard>& cards);

// False if memory ran out, or if processes need more of a card together.
[[nodiscard]] bool fits(const Rehearsal& rehearsal, const std::vector<gpu::SimulatedCard>& cards);

// Adds sentences that only the whole rehearsal can tell.
void add_notes(Rehearsal& rehearsal, const std::vector<gpu::SimulatedCard>& cards);

// `failed`: the script did, and there is no verdict.
[[nodiscard]] Answer answer_of(const RehearsalOrders& orders, const Rehearsal& rehearsal,
                               bool failed);

}  // namespace headroom::cli
