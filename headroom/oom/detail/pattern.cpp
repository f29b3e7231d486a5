#include "headroom/oom/detail/pattern.h"

#include <algorithm>

#include "headroom/oom/detail/amount_in_log.h"

namespace headroom::oom::detail {
namespace {

constexpr std::size_t kGap = 200;

// True between two characters of one word.
bool is_inside_word(std::string_view text, std::size_t at) {
  return at > 0 && at < text.size() && is_word_character(text[at - 1]) &&
         is_word_character(text[at]);
}

bool is_inside_number(std::string_view text, std::size_t at) {
  return at > 0 && at < text.size() && is_digit(text[at - 1]) && is_digit(text[at]);
}

bool stands_for_number(char c) {
  return c == '#' || c == '~' || is_digit(c);
}

// The end of the match of one pattern character at `at`.
std::optional<std::size_t> end_of_one(char c, std::string_view text, std::size_t at) {
  if (c == '#') {
    const std::size_t end = after_number(text, at);
    return end == at ? std::nullopt : std::optional(end);
  }
  if (c == '~') {
    const auto amount = amount_at(text, at);
    return amount && amount->has_unit ? std::optional(amount->end) : std::nullopt;
  }
  return at < text.size() && text[at] == c ? std::optional(at + 1) : std::nullopt;
}

// The end of the match of a piece (a pattern without `*`) exactly at `at`. A number of a piece
// never matches a part of a longer one.
std::optional<std::size_t> end_of_piece(std::string_view piece, std::string_view text,
                                        std::size_t at) {
  if (!piece.empty() && stands_for_number(piece.front()) && is_inside_number(text, at)) return {};
  for (const char c : piece) {
    const auto end = end_of_one(c, text, at);
    if (!end) return {};
    at = *end;
  }
  if (!piece.empty() && stands_for_number(piece.back()) && is_inside_number(text, at)) return {};
  return at;
}

struct Edges {
  bool front = false, back = false;  // these ends must be edges of words
};

std::optional<Span> find_piece(std::string_view piece, std::string_view text, std::size_t from,
                               std::size_t before, Edges edges) {
  // Searches for the first plain character fast; most lines do not even contain it.
  const bool plain = !piece.empty() && piece[0] != '#' && piece[0] != '~';
  for (std::size_t at = from; at < std::min(before, text.size()); ++at) {
    if (plain) {
      at = text.find(piece[0], at);
      if (at >= before || at == std::string_view::npos) return {};
    }
    if (edges.front && is_inside_word(text, at)) continue;
    const auto end = end_of_piece(piece, text, at);
    if (end && !(edges.back && is_inside_word(text, *end))) return Span{at, *end};
  }
  return {};
}

std::optional<std::size_t> end_of_rest(std::string_view rest, std::string_view text,
                                       std::size_t from, bool edge_at_back) {
  while (!rest.empty()) {
    const std::size_t star = rest.find('*');
    const bool last = star == std::string_view::npos;
    const auto found = find_piece(rest.substr(0, star), text, from, from + kGap,
                                  {.front = false, .back = last && edge_at_back});
    if (!found) return {};
    from = found->end;
    rest = last ? std::string_view{} : rest.substr(star + 1);
  }
  return from;
}

}  // namespace

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

std::optional<Span> find(std::string_view pattern, std::string_view text, std::size_t begins_before,
                         std::size_t from) {
  Edges edges{.front = true, .back = true};
  if (pattern.starts_with('*')) {
    edges.front = false;
    pattern.remove_prefix(1);
  }
  if (pattern.ends_with('*')) {
    edges.back = false;
    pattern.remove_suffix(1);
  }
  const std::size_t star = pattern.find('*');
  const std::string_view first = pattern.substr(0, star);
  const std::string_view rest =
      star == std::string_view::npos ? std::string_view{} : pattern.substr(star + 1);
  while (!first.empty()) {
    const auto found = find_piece(first, text, from, begins_before,
                                  {.front = edges.front, .back = rest.empty() && edges.back});
    if (!found) return {};
    if (const auto end = end_of_rest(rest, text, found->end, edges.back))
      return Span{found->begin, *end};
    from = found->begin + 1;
  }
  return {};
}

bool matches(std::string_view pattern, std::string_view text) {
  return find(pattern, text).has_value();
}

}  // namespace headroom::oom::detail
