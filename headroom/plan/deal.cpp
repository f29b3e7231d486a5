#include "headroom/plan/deal.h"

#include <algorithm>
#include <map>
#include <utility>

namespace headroom::plan {
namespace {

constexpr std::size_t kMostMoves = 20'000;

// All ways to take `count` of these, which are left of each class.
void take(std::vector<std::vector<int>>& ways, std::vector<int>& taken,
          const std::vector<int>& left, std::size_t from, int count) {
  if (count == 0) return ways.push_back(taken);
  if (ways.size() > kMostMoves) return;
  for (std::size_t c = from; c < left.size(); ++c) {
    if (taken[c] == left[c]) continue;
    ++taken[c];
    take(ways, taken, left, c, count - 1);
    --taken[c];
  }
}

}  // namespace

Deal::Deal(const std::vector<PlanCard>& cards, int replicas, int stages) {
  const auto by_memory = [](const PlanCard& one, const PlanCard& other) {
    return std::pair(one.reserved, one.resident) > std::pair(other.reserved, other.resident);
  };
  for (std::size_t card = 0; card < cards.size(); ++card) {
    auto same = std::find(classes_.begin(), classes_.end(), cards[card]);
    if (same == classes_.end()) {
      same = std::upper_bound(classes_.begin(), classes_.end(), cards[card], by_memory);
      members_.insert(members_.begin() + (same - classes_.begin()), std::vector<int>{});
      same = classes_.insert(same, cards[card]);
    }
    members_[static_cast<std::size_t>(same - classes_.begin())].push_back(static_cast<int>(card));
  }
  if (!list_all(replicas, stages)) list_one(replicas, stages);
}

std::size_t Deal::number_of(const Counts& counts) {
  const auto known = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& group) { return group.counts == counts; });
  if (known != groups_.end()) return static_cast<std::size_t>(known - groups_.begin());
  Group group{.counts = counts, .kinds = {}, .resident = {}, .reserved = {}, .card = 0};
  bool is_first = true;
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    const PlanCard& card = classes_[c];
    group.resident = is_first ? card.resident : std::min(group.resident, card.resident);
    group.reserved = is_first ? card.reserved : std::min(group.reserved, card.reserved);
    if (std::find(group.kinds.begin(), group.kinds.end(), card.kind) == group.kinds.end())
      group.kinds.push_back(card.kind);
    if (is_first) group.card = members_[c].front();
    is_first = false;
  }
  groups_.push_back(std::move(group));
  return groups_.size() - 1;
}

bool Deal::list_all(int replicas, int stages) {
  std::map<Counts, std::size_t> now{{Counts(classes_.size()), 0}};
  for (int position = stages - 1; position >= 0; --position) {
    std::map<Counts, std::size_t> next;
    for (const auto& [used, state] : now) {
      Counts left;
      for (std::size_t c = 0; c < classes_.size(); ++c)
        left.push_back(static_cast<int>(members_[c].size()) - used[c]);
      std::vector<Counts> ways;
      Counts taken(classes_.size());
      take(ways, taken, left, 0, replicas);
      if (moves_.size() + ways.size() > kMostMoves) return false;
      for (const Counts& way : ways) {
        Counts then = used;
        for (std::size_t c = 0; c < then.size(); ++c) then[c] += way[c];
        const auto [place, is_new] = next.try_emplace(std::move(then), states_);
        states_ += is_new ? 1 : 0;
        moves_.push_back({state, place->second, number_of(way), position});
      }
    }
    now = std::move(next);
  }
  for (const auto& [used, state] : now) ends_.push_back(state);
  std::stable_sort(moves_.begin(), moves_.end(),
                   [](const Move& one, const Move& other) { return one.from < other.from; });
  return true;
}

void Deal::list_one(int replicas, int stages) {
  moves_.clear();
  groups_.clear();
  states_ = static_cast<std::size_t>(stages) + 1;
  ends_ = {states_ - 1};
  std::vector<std::size_t> in_order;  // the class of each card
  for (std::size_t c = 0; c < classes_.size(); ++c)
    in_order.insert(in_order.end(), members_[c].size(), c);
  for (int position = stages - 1; position >= 0; --position) {
    Counts taken(classes_.size());
    for (int one = 0; one < replicas; ++one)
      ++taken[in_order[static_cast<std::size_t>(position * replicas + one)]];
    const auto state = static_cast<std::size_t>(stages - 1 - position);
    moves_.push_back({state, state + 1, number_of(taken), position});
  }
}

// Among cards that are alike, the first replica has the first ones.
std::vector<std::vector<int>> Deal::cards_of(const std::vector<std::size_t>& groups) const {
  std::vector<std::vector<std::size_t>> class_of(groups.size());  // by stage and replica
  for (std::size_t stage = 0; stage < groups.size(); ++stage) {
    const Counts& counts = group(groups[stage]).counts;
    for (std::size_t c = 0; c < counts.size(); ++c)
      class_of[stage].insert(class_of[stage].end(), static_cast<std::size_t>(counts[c]), c);
  }
  std::vector<std::size_t> used(classes_.size());
  std::vector<std::vector<int>> cards(groups.size());
  for (std::size_t replica = 0; replica < class_of.front().size(); ++replica)
    for (std::size_t stage = 0; stage < groups.size(); ++stage) {
      const std::size_t c = class_of[stage][replica];
      cards[stage].push_back(members_[c][used[c]++]);
    }
  return cards;
}

}  // namespace headroom::plan
