// A simulated card as JSON: how it crosses from one process, or language, to another.
#pragma once

#include "headroom/base/json.h"
#include "headroom/gpu/simulated.h"

namespace headroom::gpu {

[[nodiscard]] Json to_json(const SimulatedCard& card);
[[nodiscard]] SimulatedCard card_from_json(const Json& json);

}  // namespace headroom::gpu
