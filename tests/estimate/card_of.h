#pragma once

#include "headroom/gpu/simulated.h"

namespace headroom::estimate {

inline gpu::SimulatedCard card_of(Bytes total) {
  return {.name = "a card", .total = total, .reserved = {}, .profile = {}};
}

}  // namespace headroom::estimate
