// Parses texts and integers of protocol 0, the pickle format that is text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::trace::pickle {

// "caf\u00e9" with escapes of 4 or 8 digits; all other bytes are Latin-1. Empty: a broken escape.
[[nodiscard]] std::optional<std::string> unescape_unicode(std::string_view text);

// 'quoted' as Python writes a text: \n, \x41, \101, \\ ... Empty: not quoted, or a broken escape.
[[nodiscard]] std::optional<std::string> unquote(std::string_view text);

struct SpelledInteger {
  bool is_one = false;                // the text is an integer, of any length
  std::optional<std::int64_t> value;  // empty: more than 64 bits
};
[[nodiscard]] SpelledInteger parse_integer(std::string_view text);

}  // namespace headroom::trace::pickle
