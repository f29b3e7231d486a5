// Training steps of a case without data, on a card that is large enough for all.
#pragma once

#include <torch/torch.h>

#include <ostream>

#include "headroom/sim/simulate.h"
#include "tests/nets/training.h"

namespace headroom::nets {

// Tests are named after the case.
inline void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

inline sim::Simulation roomy_card(sim::Rules rules) {
  return sim::simulate("1x4000GiB", {.rules = rules, .cublas_workspaces = false});
}

// Highest sum of the bytes that were asked for, from the built net on: without what the allocator
// rounds up, as PyTorch's own tools count on the CPU.
inline std::int64_t peak_bytes(const Case& of, sim::Rules rules, int steps = 2) {
  const sim::Simulation box = roomy_card(rules);
  const Training training(of, of.real, box.device(0));
  const Batch batch = empty_batch(training.net().inputs(), training.floats(), box.device(0));
  box.card(0).reset_peaks();
  train(training, batch, steps);
  return box.card(0).statistics().requested_bytes.all.peak;
}

}  // namespace headroom::nets
