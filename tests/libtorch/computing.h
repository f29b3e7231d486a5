#pragma once

#include "headroom/sim/simulate.h"

namespace headroom::libtorch {

inline sim::Simulation computing(const char* spec) {
  return sim::simulate(spec, {.mode = sim::Mode::compute});
}

inline std::int64_t allocated(const sim::Card& card) {
  return card.statistics().allocated_bytes.all.current;
}

}  // namespace headroom::libtorch
