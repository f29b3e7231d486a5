// Lines of styled text, as the drawing makes them and a terminal shows them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/time.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

struct Span {
  std::string text;
  Colour colour = Colour::plain;
  bool reverse = false;
  bool operator==(const Span&) const = default;
};
using Line = std::vector<Span>;
using Screen = std::vector<Line>;

[[nodiscard]] std::string text_of(const Line& line);
[[nodiscard]] int cells_of(const Line& line);
// Cut to `width` cells, or filled up with blanks.
[[nodiscard]] Line fitted(Line line, int width, const Terminal& terminal);
// The line in reverse, over the whole width.
[[nodiscard]] Line reversed(Line line, int width, const Terminal& terminal);

// Exactly `width` cells: cut, or filled up with blanks on the right; `right`: on the left.
[[nodiscard]] std::string in_cells(std::string_view text, int width, const Terminal& terminal,
                                   bool right = false);

// Text of which the terminal shows each character in one cell, as the drawing counts: a character
// of two cells or none becomes `?`; without UTF-8 each that is not ASCII.
[[nodiscard]] std::string showable(std::string text, const Terminal& terminal);

// A graph, one character a percentage from 0 to 100; a blank where it is unknown.
[[nodiscard]] std::string graph(const std::vector<std::optional<int>>& percents,
                                const Terminal& terminal);

// "10.2G", "512M", "0": a size in few cells; G is GiB, M is MiB.
[[nodiscard]] std::string brief(Bytes size);
// "12.3/24.0G"
[[nodiscard]] std::string brief_of(Bytes used, Bytes total);
// "3m20s", "4d3h"
[[nodiscard]] std::string brief_age(Seconds age);

}  // namespace headroom::cli
