// The small language in which the rules are written, so that a rule reads like the message it
// knows.
//
// Everything is lower case. `*` is anything, up to 200 characters; `<` and `>` are the edges of a
// word; `#` is a number ("1,024", "0.5"). A blank is exactly one blank: see Line::text.
//
//   matches("tried to allocate # *ib", line)
//   matches("<oom> when allocating", line)
#pragma once

#include <optional>
#include <string_view>

namespace headroom::oom::detail {

struct Span {
  std::size_t begin = 0, end = 0;
};

// The first place where the pattern is found and begins before `begins_before`.
[[nodiscard]] std::optional<Span> find(std::string_view pattern, std::string_view text,
                                       std::size_t begins_before = std::string_view::npos);

[[nodiscard]] bool matches(std::string_view pattern, std::string_view text);
[[nodiscard]] bool is_word_character(char c);

}  // namespace headroom::oom::detail
