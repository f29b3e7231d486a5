// What shows a program at work: steps with their losses, progress bars, trials and files that are
// done. A bar that is drawn once more and a summary at the end show nothing: numbers have to rise.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/oom/detail/lines.h"

namespace headroom::oom::detail {

struct Progress {
  enum class Of { steps, bar, items };
  Of of = Of::steps;
  bool failed = false;          // an item that was not done
  double outer = 0, inner = 0;  // epoch 3 or 0.41, step 120; of items which kind, and trial 7
  std::size_t line = 0;
};

// All lines that show it, in their order.
[[nodiscard]] std::vector<Progress> progress_in(const std::vector<Line>& lines);

// Whether the program went on after a line: steps, bars or items of the same speaker rise behind
// it, enough of them. Of a program that `ended_well` one is enough.
[[nodiscard]] bool goes_on(const std::vector<Line>& lines, const std::vector<Progress>& progress,
                           std::size_t after, bool ended_well);

}  // namespace headroom::oom::detail
