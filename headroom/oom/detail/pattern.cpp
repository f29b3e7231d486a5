#include "headroom/oom/detail/pattern.h"

#include <algorithm>

namespace headroom::oom::detail {
namespace {

constexpr std::size_t kGap = 200;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool at_word_edge(std::string_view text, std::size_t at) {
  const bool before = at > 0 && is_word_character(text[at - 1]);
  const bool after = at < text.size() && is_word_character(text[at]);
  return before != after;
}

// Behind a number that begins at `at`; `at` itself if none does.
std::size_t after_number(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() &&
         (is_digit(text[end]) || (end > at && (text[end] == '.' || text[end] == ','))))
    ++end;
  while (end > at && !is_digit(text[end - 1])) --end;
  return end;
}

// Behind a piece (a pattern without `*`) that stands exactly at `at`.
std::optional<std::size_t> end_of_piece(std::string_view piece, std::string_view text,
                                        std::size_t at) {
  for (const char c : piece) {
    if (c == '<' || c == '>') {
      if (!at_word_edge(text, at)) return {};
    } else if (c == '#') {
      const std::size_t end = after_number(text, at);
      if (end == at) return {};
      at = end;
    } else {
      if (at >= text.size() || text[at] != c) return {};
      ++at;
    }
  }
  return at;
}

std::optional<Span> find_piece(std::string_view piece, std::string_view text, std::size_t from,
                               std::size_t before) {
  // The first plain character is looked for fast; most lines do not even have that. A word's edge
  // before it takes no room.
  const std::size_t lead = piece.find_first_not_of('<');
  const bool plain = lead != std::string_view::npos && piece[lead] != '>' && piece[lead] != '#';
  for (std::size_t at = from; at < std::min(before, text.size()); ++at) {
    if (plain) {
      at = text.find(piece[lead], at);
      if (at >= before || at == std::string_view::npos) return {};
    }
    if (const auto end = end_of_piece(piece, text, at)) return Span{at, *end};
  }
  return {};
}

std::optional<std::size_t> end_of_rest(std::string_view rest, std::string_view text,
                                       std::size_t from) {
  while (!rest.empty()) {
    const std::size_t star = rest.find('*');
    const auto found = find_piece(rest.substr(0, star), text, from, from + kGap);
    if (!found) return {};
    from = found->end;
    rest = star == std::string_view::npos ? std::string_view{} : rest.substr(star + 1);
  }
  return from;
}

}  // namespace

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

std::optional<Span> find(std::string_view pattern, std::string_view text,
                         std::size_t begins_before) {
  const std::size_t star = pattern.find('*');
  const std::string_view first = pattern.substr(0, star);
  const std::string_view rest =
      star == std::string_view::npos ? std::string_view{} : pattern.substr(star + 1);
  for (std::size_t from = 0;;) {
    const auto found = find_piece(first, text, from, begins_before);
    if (!found) return {};
    if (const auto end = end_of_rest(rest, text, found->end)) return Span{found->begin, *end};
    from = found->begin + 1;
  }
}

bool matches(std::string_view pattern, std::string_view text) {
  return find(pattern, text).has_value();
}

}  // namespace headroom::oom::detail
