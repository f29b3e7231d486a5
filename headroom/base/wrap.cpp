#include "headroom/base/wrap.h"

#include <algorithm>

#include "headroom/base/text.h"

namespace headroom {

std::size_t cells(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string wrapped(std::string_view text, std::string_view first, std::string_view next,
                    int width) {
  const std::size_t room = static_cast<std::size_t>(std::max(40, width)) - cells(next);
  std::string out(first);
  std::size_t filled = 0;
  for (const std::string_view word : split(text, ' ')) {
    if (filled > 0 && filled + 1 + cells(word) > room) {
      out.append("\n").append(next);
      filled = 0;
    }
    if (filled > 0) out += ' ';
    out += word;
    filled += (filled > 0 ? 1 : 0) + cells(word);
  }
  return out + "\n";
}

}  // namespace headroom
