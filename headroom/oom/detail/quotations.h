// Which lines of an output are no message of the program, but something that it shows: lines of
// code in a traceback, frames of a stack, help texts, names of tests, other people's logs. They
// hold the words of any failure and tell of none.
#pragma once

#include <vector>

#include "headroom/oom/detail/lines.h"

namespace headroom::oom::detail {

// Sets Line::is_quoted, from what the lines look like and where they stand.
void mark_quotations(std::vector<Line>& lines);

}  // namespace headroom::oom::detail
