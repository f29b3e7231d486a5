// Places that a line only quotes: an element of a list, one of several possible outcomes, the words
// of another text.
#pragma once

#include <optional>
#include <string_view>

#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {

struct Quote {
  std::size_t open = 0, close = 0;  // positions of its marks
};

// The quotes around a place, if there are any.
[[nodiscard]] std::optional<Quote> quote_around(std::string_view text, Span said);

// ["CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED"]: one of several, in quotes.
[[nodiscard]] bool is_in_list(std::string_view text, Quote quote);

// job 88123 "CUDA out of memory", input should be 'out of memory' or 'never': quoted after a word
// that reports no failure, or as the subject of a sentence.
[[nodiscard]] bool is_citation(std::string_view text, Quote quote);

// completed, out_of_memory, timeout: one of several outcomes between commas.
[[nodiscard]] bool is_in_enumeration(std::string_view text, Span said);

}  // namespace headroom::oom::detail
