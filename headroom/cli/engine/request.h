// Fields that the requests of several commands share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"
#include "headroom/sim/card.h"

namespace headroom::cli {

// An empty list means no limit.
[[nodiscard]] std::vector<gpu::SimulatedCard> limited_cards_of(const Json& request);
// Empty for null.
[[nodiscard]] std::string text_or_none(const Json& value);
// Without cards, one card without a limit, which a run needs.
[[nodiscard]] std::vector<gpu::SimulatedCard> cards_of(const Json& request);
[[nodiscard]] sim::Rules rules_of(const Json& request);
// std::nullopt: use the environment's settings.
[[nodiscard]] std::optional<allocator::Settings> allocator_of(const Json& request);

}  // namespace headroom::cli
