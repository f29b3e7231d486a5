#include "headroom/cli/core/view/fit_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/cli/core/view/advice_view.h"
#include "headroom/cli/core/view/estimate_view.h"

namespace headroom::cli {
namespace {

std::int64_t smallest_tried(const Json& document) {
  auto smallest = std::numeric_limits<std::int64_t>::max();
  for (const Json& probe : document.at("probes"))
    smallest = std::min(smallest, probe.at("batch").get<std::int64_t>());
  return smallest;
}

std::string answer(const Json& document, const Terminal& terminal) {
  const bool batch = document.at("over") == "batch";
  const char* what = batch ? "batch" : "sequence";
  const Json& size = document.at("max_batch");
  if (size.is_null())
    return terminal.paint("Does not fit", Colour::red) +
           fmt::format(": not even a {} of {}\n", what, smallest_tried(document));
  std::string text = terminal.paint(
      fmt::format("{} {} {}", batch ? "Largest" : "Longest", what, size.get<std::int64_t>()),
      Colour::green);
  if (document.at("capped").get<bool>())
    text += batch ? " (the largest allowed)" : " (the longest allowed, or the model's maximum)";
  if (!document.at("proven").get<bool>()) text += " (the next larger one was not tried)";
  const Json& recommended = document.at("recommended_batch");
  text += recommended.is_null() ? "; none leaves the margin free"
                                : fmt::format("; recommended {}, which leaves a margin",
                                              recommended.get<std::int64_t>());
  return in_lines(text, "", "  ", terminal);
}

std::string probes_table(const Json& document, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& probe : document.at("probes")) {
    const bool fits = probe.at("fits").get<bool>();
    rows.push_back(
        {fmt::format("{}", probe.at("batch").get<std::int64_t>()),
         to_string(bytes_from(probe.at("peak_process_bytes"))),
         terminal.paint(fits ? "fits" : "does not fit", fits ? Colour::green : Colour::red)});
  }
  return table({{document.at("over") == "batch" ? "batch" : "tokens", true}, {"needs", true}, {""}},
               rows, terminal);
}

}  // namespace

std::string fit_text(const Json& document, const Terminal& terminal) {
  const int width = std::clamp(terminal.width, 20, 100);
  const Json& device = document.at("device");
  const std::string model = document.at("model").at("name").get<std::string>();
  std::string text = terminal.paint(model, Colour::bold) + "\n";
  Json settings = document.at("settings");
  if (const Json& size = document.at("max_batch"); !size.is_null())
    settings[document.at("over").get<std::string>()] = size;
  text += wrapped(settings_text(settings), "", "", width) + notes_text(document, terminal);
  text += fmt::format("on {}, {} ({} usable)\n\n", device.at("name").get<std::string>(),
                      to_string(bytes_from(device.at("total_bytes"))),
                      to_string(bytes_from(device.at("usable_bytes"))));
  return text + answer(document, terminal) + "\n" + probes_table(document, terminal) +
         advice_text(document, terminal);
}

}  // namespace headroom::cli
