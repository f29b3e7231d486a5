#include "headroom/trace/detail/pickle_text.h"

#include <algorithm>
#include <charconv>

namespace headroom::trace::pickle {
namespace {

// Encodes as UTF-8. Each half of a surrogate pair becomes three bytes, as in Python.
void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto tail = [&](int shift) { add(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    tail(6);
  } else {
    add(0xF0 | code >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
}

// Takes `digits` digits from the front. Empty: there are fewer.
std::optional<std::uint32_t> take_digits(std::string_view& text, std::size_t digits, int base) {
  std::uint32_t code = 0;
  if (text.size() < digits) return {};
  const char* const end = text.data() + digits;
  const auto [after, error] = std::from_chars(text.data(), end, code, base);
  if (error != std::errc{} || after != end) return {};
  text.remove_prefix(digits);
  return code;
}

std::optional<char> simple_escape(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case '\\':
    case '\'':
    case '"':
      return letter;
    default:
      return {};
  }
}

}  // namespace

std::optional<std::string> unescape_unicode(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const char first = text[0];
    const char second = text.size() > 1 ? text[1] : '\0';
    if (first != '\\' || (second != 'u' && second != 'U')) {
      append_utf8(result, static_cast<std::uint8_t>(first));
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(2);
    const auto code = take_digits(text, second == 'u' ? 4 : 8, 16);
    if (!code || *code > 0x10FFFF) return {};
    append_utf8(result, *code);
  }
  return result;
}

std::optional<std::string> unquote(std::string_view text) {
  if (text.size() < 2 || text.front() != text.back()) return {};
  if (text.front() != '\'' && text.front() != '"') return {};
  text = text.substr(1, text.size() - 2);
  std::string result;
  while (!text.empty()) {
    const char first = text[0];
    text.remove_prefix(1);
    if (first != '\\') {
      result += first;
      continue;
    }
    if (text.empty()) return {};
    if (const auto simple = simple_escape(text[0])) {
      result += *simple;
      text.remove_prefix(1);
      continue;
    }
    const bool hex = text[0] == 'x';
    if (hex) text.remove_prefix(1);
    const auto code = hex ? take_digits(text, 2, 16) : take_digits(text, 3, 8);
    if (!code || *code > 0xFF) return {};
    result += static_cast<char>(*code);
  }
  return result;
}

SpelledInteger parse_integer(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return {};
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{}) return {.is_one = true, .value = {}};
  return {.is_one = true, .value = value};
}

}  // namespace headroom::trace::pickle
