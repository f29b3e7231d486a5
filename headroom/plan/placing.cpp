#include "headroom/plan/placing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom::plan {
namespace {

constexpr double kBalance = 1.15;
// What the formula of a split (split.h) may be off from the played time, and a split still counts.
constexpr double kFormulaOff = 1.1;

}  // namespace

Placing::Placing(const SearchQuestion& question, Pricer& pricer)
    : question_(question), pricer_(pricer), layers_(pricer.layers()) {
  for (const PlanCard& card : question.cards) {
    kind_of_card_.push_back(card.kind);
    kinds_ = std::max(kinds_, card.kind + 1);
  }
}

// ---- Times ----

LayerTimes Placing::Sums::of(const Piece& piece) const {
  const LayerTimes& begin = upto[static_cast<std::size_t>(piece.first)];
  const LayerTimes& end = upto[static_cast<std::size_t>(piece.first + piece.count)];
  const double again = piece.checkpointed ? end.again - begin.again : 0;
  return {end.forward - begin.forward, end.backward - begin.backward + again, again,
          end.optimizer - begin.optimizer};
}

const Placing::Sums& Placing::sums(const Form& form, int kind) {
  const auto key = std::tuple(form.techniques, form.rows, kind);
  const auto known = sums_.find(key);
  if (known != sums_.end()) return known->second;
  Sums sums{.upto = {{}}};
  for (const LayerTimes& layer : pricer_.times(form, kind)) {
    const LayerTimes& before = sums.upto.back();
    sums.upto.push_back({before.forward + layer.forward, before.backward + layer.backward,
                         before.again + layer.again, before.optimizer + layer.optimizer});
    sums.longest = std::max(sums.longest, layer.forward + layer.backward);
  }
  return sums_.emplace(key, std::move(sums)).first->second;
}

// A part reaches a stage after the stages before it, and their backward passes follow: for each
// stage, T >= the part's time before it + parts x its own. With stages that make these equal,
// T = all / (1 - (1 - 1 / parts)^stages); no split has a lower one.
double Placing::bound(const Combination& one) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int kind = 0; kind < kinds_; ++kind) {
    const Sums& of = sums(one.form, kind);
    const LayerTimes& all = of.upto.back();
    const double parts = one.parts;
    const double divided = (all.forward + all.backward) / (1 - std::pow(1 - 1 / parts, one.stages));
    fastest = std::min(fastest, std::max(divided, parts * of.longest) + all.optimizer / one.stages);
  }
  return fastest;
}

StageTimes Placing::times_of(const Combination& one, const Piece& piece,
                             const std::vector<int>& kinds) {
  StageTimes slowest;
  for (const int kind : kinds) {
    const LayerTimes sum = sums(one.form, kind).of(piece);
    slowest.forward = std::max(slowest.forward, sum.forward);
    slowest.backward = std::max(slowest.backward, sum.backward);
    slowest.optimizer = std::max(slowest.optimizer, sum.optimizer);
  }
  return slowest;
}

Placement Placing::placement_of(const Combination& one, const Split& split) {
  Placement made{.form = one.form, .parts = one.parts, .stages = {}};
  std::vector<std::size_t> groups;
  for (const Piece& piece : split) groups.push_back(piece.group);
  const auto cards = deal_of(one).cards_of(groups);
  for (std::size_t position = 0; position < split.size(); ++position) {
    const Stage stage = stage_of(one, static_cast<int>(position), split[position]);
    made.stages.push_back({stage, cards[position], pricer_.at_least(stage)});
  }
  return made;
}

Placement Placing::timed(const Combination& one, const Split& split) {
  Placement made = placement_of(one, split);
  made.seconds = step_seconds(
      made.stages, kind_of_card_, question_.pipeline, one.parts, pricer_,
      [&](const Stage& stage, int kind) {
        return sums(one.form, kind).of({stage.first, stage.count, stage.checkpointed, 0});
      });
  return made;
}

// ---- Memory ----

Stage Placing::stage_of(const Combination& one, int position, const Piece& piece) const {
  const int waiting = most_in_flight(question_.pipeline, position, one.stages, one.parts);
  const int parts = std::min(one.parts, std::max(waiting + 2, kMostParts));
  return {.form = one.form,
          .first = piece.first,
          .count = piece.count,
          .waiting = waiting,
          .parts = parts,
          .rows = parts < one.parts ? parts * one.form.rows : one.rows,
          .checkpointed = piece.checkpointed};
}

// The mean is of exact figures, so there is no limit before they are known.
Bytes Placing::resident_limit(const Combination& one, const Deal::Group& group) {
  const auto balanced = balanced_.find({one.form, one.stages});
  return balanced == balanced_.end() ? group.resident : std::min(group.resident, balanced->second);
}

double Placing::share_of(const Combination& one, const Deal::Group& group,
                         const StageMemory& memory) {
  return std::max(Refusal::share_of(memory.resident, resident_limit(one, group)),
                  Refusal::share_of(memory.reserved, group.reserved));
}

bool Placing::fits_exactly(const Placed& placed) {
  const Combination& one = placed.combination;
  const Deal& deal = deal_of(one);
  Bytes all, largest;
  for (std::size_t position = 0; position < placed.split.size(); ++position) {
    const StageMemory memory = pricer_.exact(placed.placement.stages[position].stage);
    const Deal::Group& group = deal.group(placed.split[position].group);
    if (memory.resident > group.resident || memory.reserved > group.reserved) return false;
    all += memory.resident;
    largest = std::max(largest, memory.resident);
  }
  if (!question_.balance) return true;
  const Bytes mean{all.count / one.stages};
  const Bytes balanced{static_cast<std::int64_t>(kBalance * static_cast<double>(mean.count))};
  if (largest <= balanced) return true;
  const auto [place, is_new] = balanced_.try_emplace(std::pair(one.form, one.stages), balanced);
  if (!is_new) place->second = std::min(place->second, balanced);
  return false;
}

// ---- Placements ----

const Deal& Placing::deal_of(const Combination& one) {
  const auto key = std::pair(one.form.replicas, one.stages);
  const auto known = deals_.find(key);
  if (known != deals_.end()) return known->second;
  return deals_.emplace(key, Deal(question_.cards, key.first, key.second)).first->second;
}

// Moves single layers between neighbours while that makes the step shorter.
void Placing::improve(Placed& placed) {
  const Combination& one = placed.combination;
  const Deal& deal = deal_of(one);
  const auto allowed = [&](const Split& split, std::size_t position) {
    const Piece& piece = split[position];
    return piece.count > 0 &&
           allows(one, deal.group(piece.group), at_least(one, static_cast<int>(position), piece));
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t border = 1; border < placed.split.size(); ++border)
      for (const std::int64_t layers : {-1, 1}) {
        Split other = placed.split;
        other[border - 1].count += layers;
        other[border].first += layers;
        other[border].count -= layers;
        if (!allowed(other, border - 1) || !allowed(other, border)) continue;
        Placement made = timed(one, other);
        if (made.seconds >= placed.placement.seconds * (1 - 1e-9)) continue;
        placed.split = std::move(other);
        placed.placement = std::move(made);
        moves = true;
      }
  }
}

// The time of the stages from this one on. A stage takes its passes for all parts, and what it
// waits for others: until the first part is back from the stages after it, less the forward passes
// that it runs meanwhile, and likewise at the end. For gpipe all forward passes come first: each of
// the two halves takes as long as the first part, and for each further one as long as the longest
// pass.
Worth Placing::worth_of(const Combination& one, int position, const Piece& piece, const Piece* next,
                        const Worth& after) {
  const Deal& deal = deal_of(one);
  const StageTimes times = times_of(one, piece, deal.group(piece.group).kinds);
  double link = 0;
  if (next != nullptr)
    link = pricer_.hand_over(one.form, next->first, deal.card_in(piece.group),
                             deal.card_in(next->group));
  const double parts = one.parts, each = times.forward + times.backward;
  const double away = after.trip + 2 * link;
  if (question_.pipeline == Pipeline::gpipe) {
    Worth worth{.trip = away + each,
                .forward = std::max({after.forward, times.forward, link}),
                .backward = std::max({after.backward, times.backward, link})};
    worth.value = worth.trip + (parts - 1) * (worth.forward + worth.backward);
    return worth;
  }
  const double others = most_in_flight(question_.pipeline, position, one.stages, one.parts) - 1;
  double own = parts * each + std::max(0.0, away - others * times.forward);
  if (parts > others + 1) own += std::max(0.0, away - others * times.backward);
  return {.value = std::max(after.value + each + 2 * link, own), .trip = away + each};
}

std::optional<Placed> Placing::fastest(const Combination& one, double limit) {
  const Deal& deal = deal_of(one);
  const auto allowed = [&](int position, const Piece& piece) {
    const Deal::Group& group = deal.group(piece.group);
    const StageTimes times = times_of(one, piece, group.kinds);
    return one.parts * (times.forward + times.backward) < limit &&
           allows(one, group, at_least(one, position, piece));
  };
  const auto worth = [&](int position, const Piece& piece, const Piece* next, const Worth& after) {
    return worth_of(one, position, piece, next, after);
  };
  const SplitQuestion question{
      .layers = layers_, .checkpointing = question_.checkpointing, .limit = kFormulaOff * limit};
  std::optional<Placed> best;
  for (const Split& split : best_splits(question, deal, allowed, worth)) {
    Placed placed{one, split, timed(one, split)};
    improve(placed);
    if (!best || placed.placement.seconds < best->placement.seconds) best = std::move(placed);
  }
  if (best && best->placement.seconds >= limit) return {};
  return best;
}

std::optional<Placing::Lack> Placing::least_lack(const Combination& one, double limit) {
  const Deal& deal = deal_of(one);
  const auto share_at = [&](int position, const Piece& piece) {
    return share_of(one, deal.group(piece.group), at_least(one, position, piece));
  };
  const auto splits = best_splits(
      {.layers = layers_, .checkpointing = question_.checkpointing, .limit = limit}, deal,
      [&](int position, const Piece& piece) { return share_at(position, piece) < limit; },
      [&](int position, const Piece& piece, const Piece*, const Worth& after) {
        return Worth{.value = std::max(after.value, share_at(position, piece))};
      });
  if (splits.empty()) return {};
  Placed placed{one, splits.front(), placement_of(one, splits.front())};
  std::size_t worst = 0;
  double most = 0;
  for (std::size_t position = 0; position < placed.split.size(); ++position) {
    const double own = share_at(static_cast<int>(position), placed.split[position]);
    if (own <= most) continue;
    most = own;
    worst = position;
  }
  const Deal::Group& group = deal.group(placed.split[worst].group);
  const auto& [stage, cards, memory] = placed.placement.stages[worst];
  const Bytes stays = resident_limit(one, group);
  const bool is_resident = Refusal::share_of(memory.resident, stays) >=
                           Refusal::share_of(memory.reserved, group.reserved);
  // The group's card with that limit.
  const auto limit_of = [&](int number) {
    const PlanCard& card = question_.cards[static_cast<std::size_t>(number)];
    return is_resident ? card.resident : card.reserved;
  };
  const int card = *std::min_element(cards.begin(), cards.end(),
                                     [&](int a, int b) { return limit_of(a) < limit_of(b); });
  const Refusal refusal{.card = card,
                        .is_resident = is_resident,
                        .needed = is_resident ? memory.resident : memory.reserved,
                        .allowed = is_resident ? stays : group.reserved};
  return Lack{most, refusal, std::move(placed)};
}

}  // namespace headroom::plan
