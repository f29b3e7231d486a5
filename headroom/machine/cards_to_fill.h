// The cards that `--gpus` names, with the memory that a run could fill: the usable memory of a real
// card, or the memory of an empty card from the catalogue.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/machine.h"
#include "headroom/gpu/profile.h"
#include "headroom/gpu/simulated.h"

namespace headroom::machine {

// `auto` gives the real card with the most usable memory, or no card if there is none; a run then
// has no limit. Throws UsageError, and UnavailableError for a card that does not report its free
// memory.
[[nodiscard]] std::vector<gpu::SimulatedCard> cards_to_fill(const std::string& gpus);
// The cards of all texts; an empty list counts as one empty text.
[[nodiscard]] std::vector<gpu::SimulatedCard> cards_to_fill(const std::vector<std::string>& gpus);

// The profile of the card's chip; null if unknown.
[[nodiscard]] const gpu::DeviceProfile* profile_of(const gpu::Card& card);

}  // namespace headroom::machine
