#include "headroom/cli/core/view/advice_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "headroom/base/bytes.h"
#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

using plan::Saving;

// ": fits"; empty if there is no card to fit into.
std::string verdict(const Saving& one, const gpu::SimulatedCard* card, const Terminal& terminal) {
  if (card == nullptr) return "";
  if (one.fits) return ": " + terminal.paint("fits", Colour::green);
  const Bytes missing = one.process - gpu::usable(*card);
  return missing.count > 0 ? ": still " + to_string(missing) + " too much" : ": still does not fit";
}

std::string change_text(const Saving& one, const gpu::SimulatedCard* card,
                        const Terminal& terminal) {
  std::string text = "needs " + to_string(one.process);
  if (one.saves_process.count > 0) text += " (" + to_string(one.saves_process) + " less)";
  text += fmt::format(", {:.2f} x the time", one.time_factor) + verdict(one, card, terminal);
  if (one.changes_training) text += "; changes the training result";
  return in_lines(terminal.paint(one.option, Colour::bold), "  ", "    ", terminal) +
         in_lines(text, "    ", "    ", terminal);
}

// The changes that can run, and those that Headroom cannot run yet.
struct Changes {
  std::string run, cannot_run;
};
Changes changes_text(const std::vector<Saving>& changes, const gpu::SimulatedCard* card,
                     const Terminal& terminal) {
  Changes text;
  for (const Saving& one : changes)
    (one.can_run ? text.run : text.cannot_run) += change_text(one, card, terminal);
  return text;
}

bool has_room_for(const std::string& text, const Terminal& terminal) {
  const auto width = static_cast<std::size_t>(terminal.width);
  const auto lines = split(text, '\n');
  return !terminal.has_width || std::all_of(lines.begin(), lines.end(),
                                            [&](const auto& line) { return cells(line) <= width; });
}

}  // namespace

std::string advice_text(const std::vector<Saving>& advice, const gpu::SimulatedCard* card,
                        bool does_not_fit, bool dry_run, const Terminal& terminal) {
  const Changes changes = changes_text(advice, card, terminal);
  std::string text;
  if (!changes.run.empty()) {
    text += does_not_fit ? "\nWhat would help" : "\nWhat would save";
    text += ", best first, ";
    text += dry_run ? "each by a dry run\n" : "by formula\n";
  }
  text += changes.run;
  if (!changes.cannot_run.empty())
    text += "\nWhat would be enough, by formula; Headroom cannot run it yet\n" + changes.cannot_run;
  return text;
}

std::string techniques_text(const std::vector<Saving>& techniques, const gpu::SimulatedCard* card,
                            const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const Saving& one : techniques) {
    const char* const fits = card == nullptr ? "" : one.fits ? "yes" : "no";
    rows.push_back({one.title, to_string(one.process), to_string(one.saves_process),
                    fmt::format("{:.2f} x", one.time_factor), fits,
                    one.changes_training ? "yes" : "no", one.can_run ? "" : "not yet", one.option});
  }
  Terminal endless = terminal;
  endless.has_width = false;
  const std::string title = "\nWhat saves memory here, by formula\n";
  const std::string text = table({{"technique"},
                                  {"needs", true},
                                  {"saves", true},
                                  {"time", true},
                                  {"fits"},
                                  {"changes result"},
                                  {"runs"},
                                  {"option"}},
                                 rows, endless);
  if (has_room_for(text, terminal)) return title + text;
  // A table cut to the terminal's width would lose the options.
  const Changes changes = changes_text(techniques, card, terminal);
  return title + changes.run +
         (changes.cannot_run.empty() ? "" : "Headroom cannot run yet\n" + changes.cannot_run);
}

}  // namespace headroom::cli
