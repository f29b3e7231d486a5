// Text functions that more than one room uses.
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
// "a", "a and b", "a, b and c".
[[nodiscard]] std::string listed(const std::vector<std::string>& parts);

[[nodiscard]] bool starts_with_any(std::string_view text,
                                   std::initializer_list<std::string_view> beginnings);

// The prefix of at most `bytes`, cut at a UTF-8 boundary.
[[nodiscard]] std::string_view beginning(std::string_view text, std::size_t bytes);

// Replaces line breaks, escapes and other control characters (ASCII and Latin 1) by blanks, so that
// text from other programs cannot break a table or a terminal.
[[nodiscard]] std::string without_controls(std::string text);

// Parses the whole text as a number; std::nullopt for other text ("12x", "", " 1", "nan", out of
// range).
[[nodiscard]] std::optional<long long> to_integer(std::string_view text);
[[nodiscard]] std::optional<double> to_number(std::string_view text);

// "1.24 B", "124.4 M", "65.8 k", "42": of parameters, with three digits.
[[nodiscard]] std::string rounded(long long count);

// `1 card`, `2 cards`, `2 processes`, `2 tries`.
[[nodiscard]] std::string counted(long long n, std::string_view noun);

// Levenshtein distance in which a swap of neighbours is one edit: "gpsu" is one edit from "gpus".
[[nodiscard]] std::size_t edits_between(std::string_view a, std::string_view b);

// The candidate that is the fewest edits from `word` (case ignored), or std::nullopt if even that
// one is too far away to be the intended word.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 const std::vector<std::string>& candidates);

}  // namespace headroom
