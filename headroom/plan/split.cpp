#include "headroom/plan/split.h"

#include <algorithm>

namespace headroom::plan {
namespace {

constexpr std::size_t kMostBeside = 24, kMostFound = 12;

// The stages from one on; those after it begin with a cut of `state`, at the layer after the piece.
struct Cut {
  Worth worth = {};
  Piece piece = {};
  std::size_t state = 0, after = 0;
};

// Of two with the same group of cards for their first stage, one is not beaten by the other. The
// cards of another group may be better linked to the stage before.
class Front {
 public:
  void add(const Cut& cut) {
    const auto beats = [](const Cut& one, const Cut& other) {
      return one.piece.group == other.piece.group && one.worth.value <= other.worth.value &&
             one.worth.trip <= other.worth.trip && one.worth.forward <= other.worth.forward &&
             one.worth.backward <= other.worth.backward;
    };
    for (const Cut& one : cuts_)
      if (beats(one, cut)) return;
    std::erase_if(cuts_, [&](const Cut& one) { return beats(cut, one); });
    cuts_.push_back(cut);
    if (cuts_.size() <= kMostBeside) return;
    cuts_.erase(std::max_element(cuts_.begin(), cuts_.end(), [](const Cut& a, const Cut& b) {
      return a.worth.value < b.worth.value;
    }));
  }
  [[nodiscard]] const std::vector<Cut>& cuts() const { return cuts_; }

 private:
  std::vector<Cut> cuts_;
};

}  // namespace

std::vector<Split> best_splits(const SplitQuestion& question, const Deal& deal,
                               const Allows& allows, const WorthOf& worth) {
  const std::int64_t layers = question.layers;
  const auto width = static_cast<std::size_t>(layers) + 1;
  // By state of the deal, and by the first layer that the stages so far have.
  std::vector<Front> table(deal.states() * width);
  const auto at = [&](std::size_t state, std::int64_t layer) -> Front& {
    return table[state * width + static_cast<std::size_t>(layer)];
  };
  at(0, layers).add({});
  for (const Deal::Move& move : deal.moves()) {
    const std::int64_t before = move.position;  // stages, with a layer each at least
    for (std::int64_t end = layers; end > before; --end) {
      const std::vector<Cut>& after = at(move.from, end).cuts();
      if (after.empty()) continue;
      for (const bool checkpointed : question.checkpointing)
        for (std::int64_t first = end - 1; first >= before; --first) {
          const Piece piece{first, end - first, checkpointed, move.group};
          if (!allows(move.position, piece)) break;
          if (before == 0 && first > 0) continue;
          for (std::size_t i = 0; i < after.size(); ++i) {
            const Piece* const next = end == layers ? nullptr : &after[i].piece;
            const Cut cut{.worth = worth(move.position, piece, next, after[i].worth),
                          .piece = piece,
                          .state = move.from,
                          .after = i};
            if (cut.worth.value < question.limit) at(move.to, first).add(cut);
          }
        }
    }
  }
  std::vector<const Cut*> firsts;
  for (const std::size_t end : deal.ends())
    for (const Cut& first : at(end, 0).cuts()) firsts.push_back(&first);
  std::stable_sort(firsts.begin(), firsts.end(),
                   [](const Cut* a, const Cut* b) { return a->worth.value < b->worth.value; });
  if (firsts.size() > kMostFound) firsts.resize(kMostFound);
  std::vector<Split> splits;
  for (const Cut* cut : firsts) {
    Split& split = splits.emplace_back();
    for (;;) {
      split.push_back(cut->piece);
      const std::int64_t end = cut->piece.first + cut->piece.count;
      if (end == layers) break;
      cut = &at(cut->state, end).cuts()[cut->after];
    }
  }
  return splits;
}

}  // namespace headroom::plan
