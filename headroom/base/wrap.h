// Breaks text into lines for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// Width of the text on a terminal: counts UTF-8 characters, not bytes, and skips colour codes.
[[nodiscard]] std::size_t cells(std::string_view text);

// Length of the colour code ("\033[31m") that begins the text; 0 if there is none.
[[nodiscard]] std::size_t colour_length(std::string_view text);

// Breaks a text at blanks into lines of at most `width` cells. The first line begins with `first`,
// the others with `next`; each ends with a line break.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view first,
                                  std::string_view next, int width);

[[nodiscard]] inline bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

}  // namespace headroom
