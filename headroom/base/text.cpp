#include "headroom/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

namespace headroom {
namespace {

template <typename Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += between;
    out += parts[i];
  }
  return out;
}

std::string listed(const std::vector<std::string>& parts) {
  if (parts.size() < 2) return join(parts, "");
  return join({parts.begin(), parts.end() - 1}, ", ") + " and " + parts.back();
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view start) { return text.starts_with(start); });
}

std::string_view beginning(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (bytes > 0 && continues(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

std::string without_controls(std::string text) {
  unsigned char before = 0;
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // U+0080 to U+009F are C2 80 to C2 9F in UTF-8.
    const bool latin = before == 0xC2 && byte >= 0x80 && byte <= 0x9F;
    if (latin) *(&c - 1) = ' ';
    if (latin || byte < 0x20 || byte == 0x7F) c = ' ';
    before = byte;
  }
  return text;
}

std::optional<long long> to_integer(std::string_view text) {
  return parse_whole<long long>(text);
}
std::optional<double> to_number(std::string_view text) {
  const auto number = parse_whole<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::string rounded(long long count) {
  const auto n = static_cast<double>(count);
  if (n >= 1e9) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f} M", n / 1e6);
  return n >= 1e3 ? fmt::format("{:.1f} k", n / 1e3) : std::to_string(count);
}

std::string counted(long long n, std::string_view noun) {
  const std::string words = std::to_string(n) + " " + std::string(noun);
  if (n == 1) return words;
  if (noun.ends_with('y')) return words.substr(0, words.size() - 1) + "ies";
  return words + (noun.ends_with('s') ? "es" : "s");
}

std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  const std::string wanted = lower(word);
  const std::string* best = nullptr;
  std::size_t best_edits = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = edits_between(wanted, lower(candidate));
    if (best == nullptr || edits < best_edits) best = &candidate, best_edits = edits;
  }
  // If more than half of the word differs, it is another word, not a typo.
  if (best == nullptr || 2 * best_edits > std::max<std::size_t>(wanted.size(), 3)) return {};
  return *best;
}

}  // namespace headroom
