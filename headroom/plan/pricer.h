// Memory and time of the stages of a model, for a search over plans (search.h). A stage is some
// layers of the model on one card; embeddings belong to the first layer, and the head to the last.
//
// model_pricer.h has the one of published models.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::plan {

// What all stages of a plan have in common.
struct Form {
  int techniques = 0;     // index of the search's choices
  std::int64_t rows = 1;  // of the largest part of a batch
  int replicas = 1;
  auto operator<=>(const Form&) const = default;
};

// A step with more parts than this reserves as much as one with this many.
inline constexpr int kMostParts = 64;

// What the memory of a stage depends on.
struct Stage {
  Form form;
  std::int64_t first = 0, count = 0;  // layers
  int waiting = 1;                    // most parts that wait for their backward pass
  int parts = 1;                      // of a batch; kMostParts at most, or waiting + 2
  std::int64_t rows = 1;              // of all these parts
  bool checkpointed = false;
  auto operator<=>(const Stage&) const = default;
};

struct StageMemory {
  Bytes resident;   // parameters, gradients and optimizer states
  Bytes reserved;   // most that a step reserves
  Bytes requested;  // most that its tensors take; 0 before exact() was asked
};

// Seconds of a layer on a card, for one part; of its optimizer's update, for a step.
struct LayerTimes {
  double forward = 0, backward = 0, again = 0;  // `again`: what checkpointing computes twice
  double optimizer = 0;
};

class Pricer {
 public:
  virtual ~Pricer() = default;

  [[nodiscard]] virtual std::int64_t layers() const = 0;
  // What the stage surely needs; exact once exact() was asked.
  [[nodiscard]] virtual StageMemory at_least(const Stage& stage) = 0;
  // May take a dry run.
  [[nodiscard]] virtual StageMemory exact(const Stage& stage) = 0;
  // Of each layer, on cards of this kind (PlanCard::kind).
  [[nodiscard]] virtual std::vector<LayerTimes> times(const Form& form, int kind) = 0;
  // Seconds for the tensors of one part that the stage before this layer gives, between two cards.
  [[nodiscard]] virtual double hand_over(const Form& form, std::int64_t layer, int from,
                                         int to) = 0;
  // Seconds for the sum of a stage's gradients over the cards of its replicas.
  [[nodiscard]] virtual double sum_of_gradients(const Stage& stage,
                                                const std::vector<int>& cards) = 0;
};

}  // namespace headroom::plan
