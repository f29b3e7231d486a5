// How far a training run has come, after each committed step.
#pragma once

#include <cstdint>

#include "headroom/train/step.h"

namespace headroom::train {

struct Progress {
  const Committed& committed;
  double loss = 0, learning_rate = 0;
  std::int64_t step = 0, steps = 0;  // of all
  std::int64_t epoch = 0;            // from 1
  double rows_per_s = 0, seconds_left = 0;
};

}  // namespace headroom::train
