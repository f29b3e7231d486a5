// What this thread is doing while an operator runs on a simulated card.
#pragma once

#include <string_view>

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

struct Executing {
  Card* card = nullptr;  // whose operator runs; null: none does
  // The shapes and sizes of the results are being made, in either mode: what runs now has no data.
  bool planning = false;
  std::string_view name;  // of the operator
  bool knows = false;     // on a shape-only card: all its values are known (known.h)
};
inline thread_local Executing executing;

// The mode that holds at this moment: planning never computes, what is known does.
[[nodiscard]] inline Mode mode_now(const Card& card) {
  if (executing.planning) return Mode::shape_only;
  return executing.knows ? Mode::compute : card.mode();
}

// Of an operator whose values are known.
class KnowingScope {
 public:
  KnowingScope() { executing.knows = true; }
  ~KnowingScope() { executing.knows = before_; }
  KnowingScope(const KnowingScope&) = delete;
  KnowingScope& operator=(const KnowingScope&) = delete;

 private:
  const bool before_ = executing.knows;
};

class ExecutingScope {
 public:
  // Without a name: of the operator around it.
  ExecutingScope(Card* card, bool planning, std::string_view name = executing.name)
      : before_(executing) {
    executing = {card, planning, name, before_.knows};
  }
  ~ExecutingScope() { executing = before_; }
  ExecutingScope(const ExecutingScope&) = delete;
  ExecutingScope& operator=(const ExecutingScope&) = delete;

 private:
  Executing before_;
};

}  // namespace headroom::sim::detail
