// The few things done to text in more than one room.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

[[nodiscard]] std::string_view trim(std::string_view text);
[[nodiscard]] std::string lower(std::string_view text);

// "a,b,,c" at ',' gives a, b, "", c; an empty text gives one empty part.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);
[[nodiscard]] std::string join(const std::vector<std::string>& parts, std::string_view between);

[[nodiscard]] bool starts_with_any(std::string_view text,
                                   std::initializer_list<std::string_view> beginnings);

// At most so many bytes of it, and no half of a UTF-8 character at the end.
[[nodiscard]] std::string_view beginning(std::string_view text, std::size_t bytes);

// With blanks for line breaks, escapes and other control characters (of ASCII and of Latin 1):
// somebody else's words must not reach a table or a terminal with these.
[[nodiscard]] std::string without_controls(std::string text);

// A whole text as a number; nothing for anything else ("12x", "", " 1", "nan", beyond the range).
[[nodiscard]] std::optional<long long> to_integer(std::string_view text);
[[nodiscard]] std::optional<double> to_number(std::string_view text);

// `1 card`, `2 cards`, `2 processes`.
[[nodiscard]] std::string counted(long long n, std::string_view noun);

// Levenshtein's distance with a swap of neighbours as one edit: "gpsu" is one slip from "gpus".
[[nodiscard]] std::size_t edits_between(std::string_view a, std::string_view b);

// The candidate that needs the fewest edits to become `word` (case ignored), or nothing when even
// that one is too far off to be what somebody meant.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 const std::vector<std::string>& candidates);

}  // namespace headroom
