#include "headroom/cli/core/view/tried_view.h"

#include <fmt/format.h>

#include "headroom/base/text.h"

namespace headroom::cli {

std::string tried_text(const std::vector<rehearse::TriedAdvice>& advice, const Terminal& terminal) {
  std::string text;
  std::vector<std::string> useless, nothing_to_change;
  for (const rehearse::TriedAdvice& one : advice) {
    if (!one.was_made) {
      nothing_to_change.push_back(std::string(one.change.name) + " (needs " + one.change.needs +
                                  ")");
    } else if (!one.helps()) {
      useless.emplace_back(one.change.name);
    } else {
      if (text.empty()) text = "\nTried, with what it would then need\n";
      text += in_lines(one.change.how,
                       fmt::format("  {:>11} ({} less{})  ", to_string(one.needs),
                                   to_string(one.saves), one.fits ? ", fits" : ""),
                       "    ", terminal);
    }
  }
  if (!useless.empty()) text += "\nTried, and saves nothing: " + join(useless, ", ") + "\n";
  if (!nothing_to_change.empty())
    text += "\n" + in_lines("Not tried: " + join(nothing_to_change, ", "), "", "  ", terminal);
  return text;
}

}  // namespace headroom::cli
