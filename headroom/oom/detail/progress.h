// Signs of a program at work: steps with their losses, progress bars, finished trials and files. A
// bar that is redrawn and a summary at the end are not signs: numbers have to rise.
#pragma once

#include <string_view>
#include <vector>

#include "headroom/oom/detail/lines.h"

namespace headroom::oom::detail {

struct Progress {
  enum class Of { steps, bar, items };
  Of of = Of::steps;
  bool failed = false;          // an item that failed
  double outer = 0, inner = 0;  // epoch 3 or 0.41, step 120; for items the kind, and trial 7
  std::size_t line = 0;
};

// All lines that show progress, in order.
[[nodiscard]] std::vector<Progress> progress_in(const std::vector<Line>& lines);

// True if the program went on after the line `after`: enough steps, bars or items of the same
// speaker rise after it. One is enough if the program `ended_well`.
[[nodiscard]] bool goes_on(const std::vector<Line>& lines, const std::vector<Progress>& progress,
                           std::size_t after, bool ended_well);

}  // namespace headroom::oom::detail
