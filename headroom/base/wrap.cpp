#include "headroom/base/wrap.h"

#include <algorithm>

#include "headroom/base/text.h"

namespace headroom {

std::size_t colour_length(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  const std::size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

std::size_t cells(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) {
    const std::size_t colour = colour_length(text);
    if (colour == 0 && begins_character(text[0])) ++count;
    text.remove_prefix(std::max<std::size_t>(colour, 1));
  }
  return count;
}

std::string wrapped(std::string_view text, std::string_view first, std::string_view next,
                    int width) {
  const auto room_behind = [&](std::string_view prefix) {
    const auto all = static_cast<std::size_t>(std::max(40, width));
    return all - std::min(all, cells(prefix));
  };
  std::string out(first);
  std::size_t room = room_behind(first), filled = 0;
  for (const std::string_view word : split(text, ' ')) {
    if (filled > 0 && filled + 1 + cells(word) > room) {
      out.append("\n").append(next);
      room = room_behind(next);
      filled = 0;
    }
    if (filled > 0) out += ' ';
    out += word;
    filled += (filled > 0 ? 1 : 0) + cells(word);
  }
  return out + "\n";
}

}  // namespace headroom
