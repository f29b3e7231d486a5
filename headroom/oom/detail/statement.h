// Whether a line says at some place that something happened, or only speaks of it: a setting, a
// flag that is off, advice, a guess, a denial, a question, a quoted list, the name of a file.
#pragma once

#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

enum class Statement {
  event,    // it happened
  guess,    // it may have
  mention,  // no word about it
};

// `text` of lower case; `said` is where it says so.
[[nodiscard]] Statement statement_at(std::string_view text, Span said);

}  // namespace headroom::oom::detail
