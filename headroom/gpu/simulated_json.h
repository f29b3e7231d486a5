// A simulated card as JSON, to pass it to another process or language.
#pragma once

#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"

namespace headroom::gpu {

[[nodiscard]] Json to_json(const SimulatedCard& card);
[[nodiscard]] SimulatedCard card_from_json(const Json& json);

}  // namespace headroom::gpu
