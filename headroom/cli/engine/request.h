// What the requests of several commands have in common.
#pragma once

#include <optional>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/card.h"

namespace headroom::cli {

// None: no limit.
[[nodiscard]] std::vector<gpu::SimulatedCard> limited_cards_of(const Json& request);
// None: one without limit, which a run needs.
[[nodiscard]] std::vector<gpu::SimulatedCard> cards_of(const Json& request);
[[nodiscard]] sim::Rules rules_of(const Json& request);
// Nothing: what the environment says.
[[nodiscard]] std::optional<allocator::Settings> allocator_of(const Json& request);

}  // namespace headroom::cli
