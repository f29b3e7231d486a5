#include "headroom/plan/schedule.h"

#include <algorithm>
#include <optional>

#include "headroom/base/error.h"

namespace headroom::plan {
namespace {

// By stage and part: when a pass has taken what it was given, and when it has ended.
struct Times {
  std::optional<double> taken, ended;
};

class Play {
 public:
  Play(const std::vector<StageTimes>& stages, Pipeline pipeline, int parts)
      : stages_(stages), at_(stages.size()), now_(stages.size()) {
    const auto count = static_cast<int>(stages.size());
    for (int stage = 0; stage < count; ++stage)
      lists_.push_back(passes(pipeline, stage, count, parts));
    for (auto* const times : {&forward_, &backward_})
      times->assign(stages.size(), std::vector<Times>(static_cast<std::size_t>(parts)));
  }

  // When each stage has ended its last pass.
  [[nodiscard]] const std::vector<double>& run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage)
        while (step(stage)) moves = true;
    }
    for (std::size_t stage = 0; stage < stages_.size(); ++stage)
      if (at_[stage] != lists_[stage].size())
        throw InternalError("play", "stages wait for each other");
    return now_;
  }

 private:
  // The next pass of a stage, if all that it waits for is known.
  bool step(std::size_t stage) {
    if (at_[stage] == lists_[stage].size()) return false;
    const Pass& pass = lists_[stage][at_[stage]];
    const auto part = static_cast<std::size_t>(pass.part);
    auto& all = pass.is_forward ? forward_ : backward_;
    const std::size_t last = stages_.size() - 1;
    const bool begins = stage == (pass.is_forward ? 0 : last),
               ends = stage == (pass.is_forward ? last : 0);
    double begin = now_[stage];
    if (!begins) {
      const std::size_t giver = pass.is_forward ? stage - 1 : stage + 1;
      const auto given = all[giver][part].ended;
      if (!given) return false;
      begin = std::max(begin, *given + stages_[std::min(stage, giver)].to_next);
    }
    double end = begin + (pass.is_forward ? stages_[stage].forward : stages_[stage].backward);
    if (!ends && part > 0) {
      const std::size_t taker = pass.is_forward ? stage + 1 : stage - 1;
      const auto taken = all[taker][part - 1].taken;
      if (!taken) return false;
      end = std::max(end, *taken);
    }
    all[stage][part] = {begin, end};
    now_[stage] = end;
    ++at_[stage];
    return true;
  }

  const std::vector<StageTimes>& stages_;
  std::vector<std::vector<Pass>> lists_;
  std::vector<std::size_t> at_;  // the next pass of each stage
  std::vector<double> now_;
  std::vector<std::vector<Times>> forward_, backward_;
};

}  // namespace

Played play(const std::vector<StageTimes>& stages, Pipeline pipeline, int parts) {
  if (stages.empty() || parts < 1)
    throw UsageError(expectation("play", "stages and parts", "none"));
  Play passes(stages, pipeline, parts);
  const std::vector<double>& ends = passes.run();
  Played played;
  double optimizer = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageTimes& of = stages[stage];
    const double left = std::max(0.0, of.sum_of_gradients - of.backward);
    played.seconds = std::max(played.seconds, ends[stage] + left);
    played.busy.push_back(parts * (of.forward + of.backward) + of.optimizer);
    optimizer = std::max(optimizer, of.optimizer);
  }
  played.seconds += optimizer;
  return played;
}

}  // namespace headroom::plan
