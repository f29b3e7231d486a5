#include "tests/plan/enumerate_plans.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "headroom/plan/plan.h"

namespace headroom::plan {
namespace {

using Groups = std::vector<std::vector<int>>;  // the cards of each stage, one for each replica
using Times = std::map<std::pair<Form, int>, std::vector<LayerTimes>>;  // by form and kind

// ---- The clock of a step

struct Work {
  double forward = 0, backward = 0;  // of one part
  double to_next = 0, sum = 0, update = 0;
};

// When the passes of a stage begin and end, by part, as far as they are known.
struct Clock {
  std::vector<Pass> passes;
  std::size_t done = 0;
  double free = 0;
  std::vector<double> begun[2] = {}, ended[2] = {};  // backward passes, and forward ones

  [[nodiscard]] bool has_ended(Pass pass) const {
    return ended[pass.is_forward ? 1 : 0].size() > static_cast<std::size_t>(pass.part);
  }
};

// A giver begins to hand on a part's tensors when it has them, and when the taker has begun to work
// on those of the part before.
double arrival(const Clock& giver, const Clock& taker, Pass pass, double link) {
  const std::size_t way = pass.is_forward ? 1 : 0, part = static_cast<std::size_t>(pass.part);
  const double taken = part == 0 ? 0 : taker.begun[way][part - 1];
  return std::max(giver.ended[way][part], taken) + link;
}

// Runs the stage's next pass, if what it waits for is there.
bool advance(std::vector<Clock>& clocks, const std::vector<Work>& stages, std::size_t stage) {
  Clock& own = clocks[stage];
  if (own.done == own.passes.size()) return false;
  const Pass pass = own.passes[own.done];
  double begin = own.free;
  if (pass.is_forward && stage > 0) {
    if (!clocks[stage - 1].has_ended(pass)) return false;
    begin = std::max(begin, arrival(clocks[stage - 1], own, pass, stages[stage - 1].to_next));
  }
  if (!pass.is_forward && stage + 1 < stages.size()) {
    if (!clocks[stage + 1].has_ended(pass)) return false;
    begin = std::max(begin, arrival(clocks[stage + 1], own, pass, stages[stage].to_next));
  }
  own.free = begin + (pass.is_forward ? stages[stage].forward : stages[stage].backward);
  own.begun[pass.is_forward ? 1 : 0].push_back(begin);
  own.ended[pass.is_forward ? 1 : 0].push_back(own.free);
  ++own.done;
  return true;
}

double clocked(const std::vector<Work>& stages, Pipeline pipeline, int parts) {
  std::vector<Clock> clocks;
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    clocks.push_back({.passes = passes(pipeline, static_cast<int>(stage),
                                       static_cast<int>(stages.size()), parts)});
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
      while (advance(clocks, stages, stage)) moves = true;
  }
  double gradients = 0, update = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const double summed = clocks[stage].begun[0].back() + stages[stage].sum;
    gradients = std::max({gradients, clocks[stage].free, summed});
    update = std::max(update, stages[stage].update);
  }
  return gradients + update;
}

// ---- The work of a plan's stages

const std::vector<LayerTimes>& layer_times(Times& known, Pricer& pricer, const Form& form,
                                           int kind) {
  auto found = known.find({form, kind});
  if (found == known.end())
    found = known.emplace(std::pair{form, kind}, pricer.times(form, kind)).first;
  return found->second;
}

Work work_on(const std::vector<LayerTimes>& layers, const Stage& stage) {
  Work work;
  for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer) {
    const LayerTimes& each = layers.at(static_cast<std::size_t>(layer));
    work.forward += each.forward;
    work.backward += each.backward + (stage.checkpointed ? each.again : 0);
    work.update += each.optimizer;
  }
  return work;
}

// The replicas of a stage go on together: the slowest card is the stage's.
std::vector<Work> work_of(const SearchQuestion& question, const Placement& plan, Pricer& pricer,
                          Times& known) {
  std::vector<Work> all;
  for (std::size_t at = 0; at < plan.stages.size(); ++at) {
    const PlacedStage& each = plan.stages[at];
    Work slowest;
    for (std::size_t replica = 0; replica < each.cards.size(); ++replica) {
      const int card = each.cards[replica];
      const int kind = question.cards.at(static_cast<std::size_t>(card)).kind;
      const Work work = work_on(layer_times(known, pricer, plan.form, kind), each.stage);
      slowest.forward = std::max(slowest.forward, work.forward);
      slowest.backward = std::max(slowest.backward, work.backward);
      slowest.update = std::max(slowest.update, work.update);
      if (at + 1 == plan.stages.size()) continue;
      const PlacedStage& next = plan.stages[at + 1];
      slowest.to_next = std::max(slowest.to_next, pricer.hand_over(plan.form, next.stage.first,
                                                                   card, next.cards.at(replica)));
    }
    slowest.sum = pricer.sum_of_gradients(each.stage, each.cards);
    all.push_back(slowest);
  }
  return all;
}

// ---- The lists

// Cards that are equal have the number of the first of them.
std::vector<int> classes_of(const std::vector<PlanCard>& cards) {
  std::vector<int> classes;
  for (const PlanCard& card : cards)
    classes.push_back(
        static_cast<int>(std::find(cards.begin(), cards.end(), card) - cards.begin()));
  return classes;
}

// Fills the places of all stages, stage after stage, with cards that are left. Equal cards are
// taken in their order, and so are the cards of a stage whose order does not matter.
struct Deals {
  std::vector<int> classes;
  std::size_t replicas, stages;
  Replicas order;
  std::vector<bool> taken = std::vector<bool>(classes.size());
  Groups groups = {};
  std::vector<Groups> all = {};

  void fill() {
    if (groups.empty() || (groups.back().size() == replicas && groups.size() < stages)) {
      groups.emplace_back();
      fill();
      groups.pop_back();
      return;
    }
    if (groups.back().size() == replicas) {
      all.push_back(groups);
      return;
    }
    const bool sorted = order == Replicas::in_any_order || groups.size() == 1;
    int least = 0;
    if (sorted && !groups.back().empty())
      least = classes[static_cast<std::size_t>(groups.back().back())];
    std::vector<bool> tried(classes.size());
    for (std::size_t card = 0; card < classes.size(); ++card) {
      const int own = classes[card];
      if (taken[card] || tried[static_cast<std::size_t>(own)] || own < least) continue;
      tried[static_cast<std::size_t>(own)] = true;
      taken[card] = true;
      groups.back().push_back(static_cast<int>(card));
      fill();
      groups.back().pop_back();
      taken[card] = false;
    }
  }
};

std::vector<Groups> all_deals(const std::vector<PlanCard>& cards, int replicas, int stages,
                              Replicas order) {
  Deals deals{.classes = classes_of(cards),
              .replicas = static_cast<std::size_t>(replicas),
              .stages = static_cast<std::size_t>(stages),
              .order = order};
  deals.fill();
  return deals.all;
}

// The layers of each stage: at least one.
std::vector<std::vector<std::int64_t>> all_splits(std::int64_t layers, int stages) {
  if (stages == 1) return {{layers}};
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t first = 1; first <= layers - stages + 1; ++first)
    for (std::vector<std::int64_t> rest : all_splits(layers - first, stages - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(rest);
    }
  return all;
}

std::vector<std::vector<bool>> all_choices(const std::vector<bool>& choices, int stages) {
  if (stages == 0) return {{}};
  std::vector<std::vector<bool>> all;
  for (const std::vector<bool>& some : all_choices(choices, stages - 1))
    for (const bool choice : choices) {
      all.push_back(some);
      all.back().push_back(choice);
    }
  return all;
}

// The replicas and stages that the question leaves.
std::vector<std::pair<int, int>> all_shapes(const SearchQuestion& question, std::int64_t layers) {
  std::vector<std::pair<int, int>> all;
  const int cards = static_cast<int>(question.cards.size());
  for (int replicas = 1; replicas <= std::min<std::int64_t>(cards, question.rows); ++replicas)
    for (int stages = 1; replicas * stages <= cards && stages <= layers; ++stages)
      if (question.replicas.value_or(replicas) == replicas &&
          question.stages.value_or(stages) == stages)
        all.emplace_back(replicas, stages);
  return all;
}

// Of the replica that has the most.
std::int64_t rows_of_replica(const SearchQuestion& question, int replicas) {
  return (question.rows + replicas - 1) / replicas;
}

// The forms with so many replicas, each with its parts.
std::vector<std::pair<Form, int>> all_forms(const SearchQuestion& question, int replicas) {
  const std::int64_t rows = rows_of_replica(question, replicas);
  std::vector<std::int64_t> sizes = micro_batches(rows, {});
  if (question.part) sizes = {*question.part};
  std::vector<std::pair<Form, int>> all;
  for (int techniques = 0; techniques < question.techniques; ++techniques)
    for (const std::int64_t size : sizes) {
      const Plan plan{.micro_batch = size};
      all.emplace_back(Form{techniques, largest_part(plan, rows), replicas},
                       static_cast<int>(count_of_parts(plan, rows)));
    }
  return all;
}

// Parts that wait for their backward pass, at most, counted in the order of the passes.
int most_waiting(Pipeline pipeline, int stage, int stages, int parts) {
  int now = 0, most = 0;
  for (const Pass& pass : passes(pipeline, stage, stages, parts))
    most = std::max(most, now += pass.is_forward ? 1 : -1);
  return most;
}

// ---- All plans

class Enumeration {
 public:
  Enumeration(const SearchQuestion& question, Pricer& pricer, Replicas order)
      : question_(question), pricer_(pricer), order_(order) {}

  Enumerated all() {
    for (const auto& [replicas, stages] : all_shapes(question_, pricer_.layers())) {
      const std::vector<Groups> deals = all_deals(question_.cards, replicas, stages, order_);
      for (const auto& [form, parts] : all_forms(question_, replicas))
        for (const auto& split : all_splits(pricer_.layers(), stages))
          for (const auto& choices : all_choices(question_.checkpointing, stages)) {
            Placement plan = plan_of(form, parts, split, choices);
            for (const Groups& groups : deals) judge(plan, groups);
          }
    }
    return found_;
  }

 private:
  Placement plan_of(const Form& form, int parts, const std::vector<std::int64_t>& split,
                    const std::vector<bool>& choices) {
    Placement plan;
    plan.form = form;
    plan.parts = parts;
    const std::int64_t rows = rows_of_replica(question_, form.replicas);
    const int stages = static_cast<int>(split.size());
    std::int64_t first = 0;
    for (int at = 0; at < stages; ++at) {
      const int waiting = most_waiting(question_.pipeline, at, stages, parts);
      const std::int64_t count = split[static_cast<std::size_t>(at)];
      const int few = std::min(parts, std::max(waiting + 2, kMostParts));
      const Stage stage{.form = form,
                        .first = first,
                        .count = count,
                        .waiting = waiting,
                        .parts = few,
                        .rows = std::min(rows, few * form.rows),
                        .checkpointed = choices[static_cast<std::size_t>(at)]};
      plan.stages.push_back({.stage = stage, .cards = {}, .memory = memory_of(stage)});
      first += count;
    }
    return plan;
  }

  StageMemory memory_of(const Stage& stage) {
    const auto found = memory_.find(stage);
    if (found != memory_.end()) return found->second;
    return memory_[stage] = pricer_.exact(stage);
  }

  void judge(Placement& plan, const Groups& groups) {
    for (std::size_t at = 0; at < groups.size(); ++at) plan.stages[at].cards = groups[at];
    ++found_.plans;
    EnumeratedShape& shape =
        found_.shapes[{plan.form.replicas, static_cast<int>(plan.stages.size())}];
    const double full = fullest(question_, plan);
    shape.fullest = std::min(shape.fullest.value_or(full), full);
    if (!fits(question_, plan)) return;
    ++found_.fitting;
    plan.seconds =
        clocked(work_of(question_, plan, pricer_, times_), question_.pipeline, plan.parts);
    shape.fastest = std::min(shape.fastest.value_or(plan.seconds), plan.seconds);
    if (!found_.best || plan.seconds < found_.best->seconds) found_.best = plan;
  }

  const SearchQuestion& question_;
  Pricer& pricer_;
  Replicas order_;
  std::map<Stage, StageMemory> memory_;
  Times times_;
  Enumerated found_;
};

}  // namespace

Enumerated enumerate_plans(const SearchQuestion& question, Pricer& pricer, Replicas order) {
  return Enumeration(question, pricer, order).all();
}

std::int64_t count_plans(const SearchQuestion& question, std::int64_t layers, Replicas order) {
  std::int64_t plans = 0;
  for (const auto& [replicas, stages] : all_shapes(question, layers))
    plans += static_cast<std::int64_t>(all_deals(question.cards, replicas, stages, order).size() *
                                       all_forms(question, replicas).size() *
                                       all_splits(layers, stages).size() *
                                       all_choices(question.checkpointing, stages).size());
  return plans;
}

double fullest(const SearchQuestion& question, const Placement& plan) {
  double most = 0;
  for (const PlacedStage& each : plan.stages)
    for (const int number : each.cards) {
      const PlanCard& card = question.cards.at(static_cast<std::size_t>(number));
      most = std::max({most, ratio(each.memory.resident, card.resident),
                       ratio(each.memory.reserved, card.reserved)});
    }
  return most;
}

bool fits(const SearchQuestion& question, const Placement& plan) {
  Bytes largest, sum;
  for (const PlacedStage& each : plan.stages) {
    for (const int number : each.cards) {
      const PlanCard& card = question.cards.at(static_cast<std::size_t>(number));
      if (each.memory.resident > card.resident || each.memory.reserved > card.reserved)
        return false;
    }
    largest = std::max(largest, each.memory.resident);
    sum += each.memory.resident;
  }
  // largest <= 1.15 * sum / stages
  const auto stages = static_cast<std::int64_t>(plan.stages.size());
  return !question.balance || 100 * stages * largest <= 115 * sum;
}

double seconds_of(const SearchQuestion& question, const Placement& plan, Pricer& pricer) {
  Times known;
  return clocked(work_of(question, plan, pricer, known), question.pipeline, plan.parts);
}

}  // namespace headroom::plan
