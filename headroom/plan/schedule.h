// The time of a training step on several cards, by playing the passes of its stages (pipeline.h)
// event by event: what each stage waits for, where the stages differ, and what cards send each
// other.
//
//   const Played step = play({{.forward = 0.010, .backward = 0.020},
//                             {.forward = 0.012, .backward = 0.024}}, Pipeline::one_by_one, 8);
//   step.seconds;        // of the step
//   step.idle_share(0);  // of the first stage's card
//
// A stage begins a forward pass when the stage before has handed on its tensors, and a backward
// pass when the stage after has. It hands on the tensors of a part once the other stage has taken
// those of the part before. The cards copy while they compute.
#pragma once

#include <cstddef>
#include <vector>

#include "headroom/plan/pipeline.h"

namespace headroom::plan {

// Seconds. Of several replicas, those of the slowest card with this stage.
struct StageTimes {
  double forward = 0, backward = 0;  // of one part; with what is computed again
  double to_next = 0;                // tensors of one part, and their gradients on the way back
  double sum_of_gradients = 0;       // with the other replicas, if nothing is computed meanwhile
  double optimizer = 0;
};

struct Played {
  double seconds = 0;
  std::vector<double> busy = {};  // of each stage: computing

  [[nodiscard]] double idle_share(std::size_t stage) const {
    return seconds > 0 ? 1 - busy.at(stage) / seconds : 0;
  }
};

// The gradients of a stage are summed while the backward pass of its last part runs; what is left
// of the sum comes after that. All stages update their weights when the last one has its gradients,
// because the norm is of all gradients.
[[nodiscard]] Played play(const std::vector<StageTimes>& stages, Pipeline pipeline, int parts);

}  // namespace headroom::plan
