#include "headroom/cli/core/view/advice_view.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"

namespace headroom::cli {
namespace {

// ": fits"; empty if there is no card to fit into.
std::string verdict(const Json& one, const Json& device, const Terminal& terminal) {
  if (one.at("fits").is_null()) return "";
  if (one.at("fits").get<bool>()) return ": " + terminal.paint("fits", Colour::green);
  const Bytes missing =
      bytes_from(one.at("peak_process_bytes")) - bytes_from(device.at("usable_bytes"));
  return missing.count > 0 ? ": still " + to_string(missing) + " too much" : ": still does not fit";
}

}  // namespace

std::string change_text(const Json& one, const Json& device, const Terminal& terminal) {
  const Bytes less = bytes_from(one.at("saves_process_bytes"));
  std::string text = "needs " + to_string(bytes_from(one.at("peak_process_bytes")));
  if (less.count > 0) text += " (" + to_string(less) + " less)";
  text += fmt::format(", {:.2f} x the time", one.at("time_factor").get<double>());
  text += verdict(one, device, terminal);
  if (one.at("changes_training").get<bool>()) text += "; changes the training result";
  return in_lines(terminal.paint(one.at("change").get<std::string>(), Colour::bold), "  ", "    ",
                  terminal) +
         in_lines(text, "    ", "    ", terminal);
}

std::string advice_text(const Json& document, const Terminal& terminal) {
  const Json& device = document.at("device");
  std::string runs, cannot_run;
  for (const Json& one : document.at("advice"))
    (one.at("can_run").get<bool>() ? runs : cannot_run) += change_text(one, device, terminal);
  std::string text;
  if (!runs.empty()) {
    text += document.at("fits") == Json(false) ? "\nWhat would help" : "\nWhat would save";
    text += ", cheapest first, ";
    text += document.at("method") == "dry-run" ? "each by a dry run\n" : "by formula\n";
  }
  text += runs;
  if (!cannot_run.empty())
    text += "\nWhat would be enough, by formula; Headroom cannot run it yet\n" + cannot_run;
  return text;
}

}  // namespace headroom::cli
