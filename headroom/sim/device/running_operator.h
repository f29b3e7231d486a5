// How an operator runs on a simulated card on this thread; trace/where.h has its name.
#pragma once

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

struct RunningOperator {
  Card* card = nullptr;  // null if no operator runs
  // In either mode: the results get their shapes and sizes now, over tensors without data.
  bool planning = false;
  bool knows = false;    // on a shape-only card: all its values are known (known.h)
  bool assumes = false;  // a mask of unknown values is true in the card's share (assumed.h)
};
inline thread_local RunningOperator running;

// The mode at this moment: planning never computes, an operator whose values are known does.
[[nodiscard]] inline Mode mode_now(const Card& card) {
  if (running.planning) return Mode::shape_only;
  return running.knows ? Mode::compute : card.mode();
}

// Around an operator whose values are known.
class KnowingScope {
 public:
  KnowingScope() { running.knows = true; }
  ~KnowingScope() { running.knows = before_; }
  KnowingScope(const KnowingScope&) = delete;
  KnowingScope& operator=(const KnowingScope&) = delete;

 private:
  const bool before_ = running.knows;
};

// Around the planning of an operator whose masks cannot be given values.
class AssumingScope {
 public:
  AssumingScope() { running.assumes = true; }
  ~AssumingScope() { running.assumes = before_; }
  AssumingScope(const AssumingScope&) = delete;
  AssumingScope& operator=(const AssumingScope&) = delete;

 private:
  const bool before_ = running.assumes;
};

class RunningScope {
 public:
  RunningScope(Card* card, bool planning) : before_(running) {
    running = {card, planning, before_.knows, before_.assumes};
  }
  ~RunningScope() { running = before_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  RunningOperator before_;
};

}  // namespace headroom::sim::detail
