// Texts that are broken into lines for people to read.
#pragma once

#include <string>
#include <string_view>

namespace headroom {

// How wide it is on a terminal; counts UTF-8 characters, not bytes, and no colours.
[[nodiscard]] std::size_t cells(std::string_view text);

// Of the colour ("\033[31m") that the text begins with; 0 if it begins with none.
[[nodiscard]] std::size_t colour_length(std::string_view text);

// Breaks a text at blanks into lines of at most `width` cells, each ended: the first begins with
// `first`, the others with `next`.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view first,
                                  std::string_view next, int width);

[[nodiscard]] inline bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

}  // namespace headroom
