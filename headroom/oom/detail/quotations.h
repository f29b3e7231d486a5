// Finds the lines that are not messages of the program but something that it shows: code in a
// traceback, stack frames, help texts, names of tests, other programs' logs. They contain the words
// of any failure and report none.
#pragma once

#include <vector>

#include "headroom/oom/detail/lines.h"

namespace headroom::oom::detail {

// Sets Line::is_quoted, by the look of the lines and their position.
void mark_quotations(std::vector<Line>& lines);

}  // namespace headroom::oom::detail
