#include "headroom/cli/core/view/profile_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/answer/words.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/view/estimate_view.h"

namespace headroom::cli {
namespace {

std::string profile_text(const answer::ProfileAnswer& answer, const std::string& table) {
  const int width = static_cast<int>(profile_width());
  std::string text = answer.model;
  if (answer.settings) text += ", " + answer::settings_words(*answer.settings);
  text = wrapped(fmt::format("{}: {} on {}", text, counted(answer.steps, "step"),
                             answer.card ? answer.card->name : "a card without a limit"),
                 "", "  ", width);
  text += notes_text(answer.notes, standard_output());
  if (!answer.fits) text += "It does not fit there: the figures are for a card without a limit.\n";
  return text + "\n" + table;
}

}  // namespace

std::size_t profile_width() {
  const Terminal terminal = standard_output();
  return terminal.has_width ? static_cast<std::size_t>(std::clamp(terminal.width, 60, 100)) : 100;
}

ExitCode print_profile_json(const answer::ProfileAnswer& answer, const Json& rows) {
  print(to_line(to_json(answer, rows)) + "\n");
  return kOk;
}

ExitCode print_profile_text(const answer::ProfileAnswer& answer, const std::string& table) {
  print(profile_text(answer, table));
  return kOk;
}

}  // namespace headroom::cli
