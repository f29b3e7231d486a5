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
};
inline thread_local Executing executing;

// The mode that holds at this moment: planning never computes.
[[nodiscard]] inline Mode mode_now(const Card& card) {
  return executing.planning ? Mode::shape_only : card.mode();
}

class ExecutingScope {
 public:
  // Without a name: of the operator around it.
  ExecutingScope(Card* card, bool planning, std::string_view name = executing.name)
      : before_(executing) {
    executing = {card, planning, name};
  }
  ~ExecutingScope() { executing = before_; }
  ExecutingScope(const ExecutingScope&) = delete;
  ExecutingScope& operator=(const ExecutingScope&) = delete;

 private:
  Executing before_;
};

}  // namespace headroom::sim::detail
