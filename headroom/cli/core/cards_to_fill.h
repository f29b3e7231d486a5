// The cards that `--gpus` means, as the memory that a run could fill: of a real card what is usable
// now, of one of the catalogue what an empty one has.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/card.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/simulated.h"

namespace headroom::cli {

// `auto`: the real card with the most usable memory; none where there is no card, and then there is
// no limit to fit into. Throws UsageError, and UnavailableError for a card that does not say what
// is free.
[[nodiscard]] std::vector<gpu::SimulatedCard> cards_to_fill(const std::string& gpus);
// Of each of several texts; none: as of an empty one.
[[nodiscard]] std::vector<gpu::SimulatedCard> cards_to_fill(const std::vector<std::string>& gpus);

// What a run may fill of it.
[[nodiscard]] Bytes usable(const gpu::SimulatedCard& card);

// What is known of the card's chip; null if nothing is.
[[nodiscard]] const gpu::DeviceProfile* profile_of(const gpu::Card& card);

}  // namespace headroom::cli
