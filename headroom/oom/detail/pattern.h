// The small language of the rules, in which a rule reads like the message that it matches.
//
// Everything is lower case. A pattern begins and ends at the edge of a word, as a reader sees it:
// "npu" does not match in "input", nor "errno=12" in "errno=128". `*` matches anything, up to 200
// characters; at an end of the pattern it matches the rest of a word. `#` matches a number
// ("1,024", "0.5"), `~` an amount of memory with its unit ("2.5 gib", "512 bytes"). A blank matches
// exactly one blank: see Line::text.
//
//   matches("tried to allocate ~", line)
//   matches("*outofmemoryerror: allocation on device", line)
#pragma once

#include <optional>
#include <string_view>

namespace headroom::oom::detail {

struct Span {
  std::size_t begin = 0, end = 0;
};

inline constexpr std::size_t kAnywhere = std::string_view::npos;

// The first match that begins at or after `from` and before `begins_before`.
[[nodiscard]] std::optional<Span> find(std::string_view pattern, std::string_view text,
                                       std::size_t begins_before = kAnywhere, std::size_t from = 0);

[[nodiscard]] bool matches(std::string_view pattern, std::string_view text);
[[nodiscard]] bool is_word_character(char c);

// True if any of the patterns matches.
template <typename Patterns>
[[nodiscard]] bool matches_any(const Patterns& patterns, std::string_view text) {
  for (const std::string_view pattern : patterns)
    if (matches(pattern, text)) return true;
  return false;
}

}  // namespace headroom::oom::detail
