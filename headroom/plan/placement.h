// A plan for several cards: the stages of a model and the cards that they lie on; and why there is
// none.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/plan/pipeline.h"
#include "headroom/plan/pricer.h"

namespace headroom::plan {

struct PlacedStage {
  Stage stage;
  std::vector<int> cards;  // indices in the question, one for each replica
  StageMemory memory;
};

struct Placement {
  Form form;
  int parts = 1;  // of the rows of a replica
  std::vector<PlacedStage> stages;
  double seconds = 0;  // of a step

  [[nodiscard]] std::vector<int> checkpointed() const;  // stages
};

// Seconds of a step of these stages, by the played schedule (schedule.h). `times`: of all layers of
// a stage for one part on a card of this kind, with what is computed again.
using TimesOfStage = std::function<LayerTimes(const Stage& stage, int kind)>;
[[nodiscard]] double step_seconds(const std::vector<PlacedStage>& stages,
                                  const std::vector<int>& kind_of_card, Pipeline pipeline,
                                  int parts, Pricer& pricer, const TimesOfStage& times);

// Why no plan with so many replicas and stages fits: in the plan that lacks the least, the card
// that lacks the most.
struct Refusal {
  int card = 0;
  bool is_resident = false;  // beyond the budget of what stays; else beyond what is plannable
  Bytes needed, allowed;     // at least, and at most; by a balance, if that allows less

  // Needed / allowed: by this "least" and "most" are meant.
  [[nodiscard]] double share() const { return share_of(needed, allowed); }
  [[nodiscard]] static double share_of(Bytes needed, Bytes allowed);
};

}  // namespace headroom::plan
