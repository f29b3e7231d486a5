// Finds whether a line reports at some place that something happened, or only mentions it: a
// setting, a flag that is off, advice, a guess, a denial, a question, a quoted list, the name of a
// file.
#pragma once

#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

enum class Statement {
  event,    // it happened
  guess,    // it may have happened
  mention,  // the line does not say that it happened
};

// `text` is in lower case; `said` is the place.
[[nodiscard]] Statement statement_at(std::string_view text, Span said);

}  // namespace headroom::oom::detail
