#include "headroom/plan/placement.h"

#include <algorithm>

#include "headroom/plan/schedule.h"

namespace headroom::plan {

std::vector<int> Placement::checkpointed() const {
  std::vector<int> all;
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (stages[i].stage.checkpointed) all.push_back(static_cast<int>(i));
  return all;
}

double Refusal::share_of(Bytes needed, Bytes allowed) {
  return static_cast<double>(needed.count) /
         static_cast<double>(std::max<std::int64_t>(1, allowed.count));
}

double step_seconds(const std::vector<PlacedStage>& stages, const std::vector<int>& kind_of_card,
                    Pipeline pipeline, int parts, Pricer& pricer, const TimesOfStage& times) {
  std::vector<StageTimes> all;
  for (std::size_t position = 0; position < stages.size(); ++position) {
    const auto& [stage, cards, memory] = stages[position];
    StageTimes& own = all.emplace_back();
    for (std::size_t replica = 0; replica < cards.size(); ++replica) {
      const int kind = kind_of_card.at(static_cast<std::size_t>(cards[replica]));
      const LayerTimes on_card = times(stage, kind);
      own.forward = std::max(own.forward, on_card.forward);
      own.backward = std::max(own.backward, on_card.backward);
      own.optimizer = std::max(own.optimizer, on_card.optimizer);
      if (position == 0) continue;
      double& to_this = all[position - 1].to_next;
      to_this = std::max(
          to_this, pricer.hand_over(stage.form, stage.first, stages[position - 1].cards.at(replica),
                                    cards[replica]));
    }
    if (cards.size() > 1) own.sum_of_gradients = pricer.sum_of_gradients(stage, cards);
  }
  return play(all, pipeline, parts).seconds;
}

}  // namespace headroom::plan
