#include "headroom/oom/detail/amount_in_log.h"

#include <limits>
#include <string>

#include "headroom/base/text.h"

namespace headroom::oom::detail {
namespace {

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

// Bytes per unit: 1 for bytes, 0 if `word` is not a unit. GB and G count in powers of 1024, as
// nearly all programs mean them for memory: PyTorch's MPS, Paddle, TensorFlow, Ray.
double unit_of(std::string_view word) {
  if (word == "b" || word == "byte" || word == "bytes") return 1;
  const std::size_t power =
      word.empty() ? std::string_view::npos : std::string_view("kmgtpe").find(word[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = word.substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib" && rest != "bytes" && rest != "byte") return 0;
  double unit = 1024;
  for (std::size_t i = 0; i < power; ++i) unit *= 1024;
  return unit;
}

Bytes saturated(double bytes) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  if (bytes >= static_cast<double>(kMost)) return Bytes{kMost};
  return Bytes{static_cast<std::int64_t>(bytes)};
}

// "12 b" is twelve bytes, "12 k" is not an amount: any other single letter must touch the number.
std::string_view unit_word(std::string_view text, std::size_t at) {
  const bool apart = at < text.size() && text[at] == ' ';
  const std::size_t begin = apart ? at + 1 : at;
  std::size_t end = begin;
  while (end < text.size() && is_letter(text[end])) ++end;
  if (end < text.size() && (is_digit(text[end]) || text[end] == '_')) return {};
  const std::string_view word = text.substr(begin, end - begin);
  return apart && word.size() == 1 && word != "b" ? std::string_view{} : word;
}

}  // namespace

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t after_number(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() &&
         (is_digit(text[end]) || (end > at && (text[end] == '.' || text[end] == ','))))
    ++end;
  while (end > at && !is_digit(text[end - 1])) --end;
  return end;
}

std::optional<Amount> amount_at(std::string_view text, std::size_t at) {
  const std::size_t end = after_number(text, at);
  std::string digits;
  for (const char c : text.substr(at, end - at))
    if (c != ',') digits += c;
  const auto number = digits.size() > 40 ? std::nullopt : to_number(digits);
  if (!number) return {};
  // "201. GiB", as NumPy writes it.
  const std::size_t behind = text.substr(end).starts_with(". ") ? end + 1 : end;
  for (const std::size_t from : {end, behind}) {
    const std::string_view word = unit_word(text, from);
    const double unit = unit_of(word);
    if (unit == 0) continue;
    const auto word_end = static_cast<std::size_t>(word.data() + word.size() - text.data());
    return Amount{saturated(*number * unit), true, word_end};
  }
  if (digits.find('.') != std::string::npos) return {};  // not an amount of memory
  return Amount{saturated(*number), false, end};
}

}  // namespace headroom::oom::detail
