// The ways to deal cards out to the stages of a model: each stage gets a group of as many cards as
// there are replicas. Cards that are alike make one class, and only the numbers taken of each class
// matter, so that eight equal cards have one way, not 40,320.
//
//   const Deal deal(cards, /*replicas=*/2, /*stages=*/4);
//   for (const Deal::Move& move : deal.moves())    // a stage's group, by the stage's position
//     say(deal.group(move.group).reserved);
#pragma once

#include <cstddef>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::plan {

struct PlanCard {
  int kind = 0;    // cards of one kind have the same rates
  Bytes resident;  // budget for parameters, gradients and states
  Bytes reserved;  // most memory that a step may reserve

  bool operator==(const PlanCard&) const = default;
};

class Deal {
 public:
  // The cards of a stage: how many of each class. The weakest decides.
  struct Group {
    std::vector<int> counts, kinds;
    Bytes resident, reserved;
    int card = 0;  // one of them, or one that is alike
  };
  // A stage takes a group: from one state, in which the stages after it have taken theirs, to the
  // next. So the first move is the last stage's. Later states have higher numbers; the moves are in
  // the order of `from`.
  struct Move {
    std::size_t from, to, group;
    int position;  // of the stage
  };

  // All ways; where they are more than a search can try, one: the cards in the order of their
  // memory, the largest for the first stage.
  Deal(const std::vector<PlanCard>& cards, int replicas, int stages);

  [[nodiscard]] std::size_t states() const { return states_; }  // the first is 0
  [[nodiscard]] const std::vector<std::size_t>& ends() const { return ends_; }
  [[nodiscard]] const std::vector<Move>& moves() const { return moves_; }
  [[nodiscard]] const Group& group(std::size_t number) const { return groups_.at(number); }
  // Any card of a group.
  [[nodiscard]] int card_in(std::size_t group) const { return groups_.at(group).card; }
  // The cards of these groups, by stage.
  [[nodiscard]] std::vector<std::vector<int>> cards_of(
      const std::vector<std::size_t>& groups) const;

 private:
  using Counts = std::vector<int>;
  [[nodiscard]] bool list_all(int replicas, int stages);
  void list_one(int replicas, int stages);
  [[nodiscard]] std::size_t number_of(const Counts& counts);

  std::vector<PlanCard> classes_;          // a card of each, the largest memory first
  std::vector<std::vector<int>> members_;  // of each class
  std::vector<Group> groups_;
  std::size_t states_ = 1;
  std::vector<std::size_t> ends_;
  std::vector<Move> moves_;
};

}  // namespace headroom::plan
