#include "headroom/cli/core/view/fit_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/answer/words.h"
#include "headroom/cli/core/view/advice_view.h"
#include "headroom/cli/core/view/estimate_view.h"

namespace headroom::cli {
namespace {

using answer::Fit;
using answer::TriedSize;

std::string largest_text(const Fit& fit, const Terminal& terminal, const std::string& setting) {
  const bool batch = fit.over == answer::Over::batch;
  const std::string what = batch ? "batch" : "sequence";
  if (!fit.size) {
    const auto smallest =
        std::min_element(fit.tried.begin(), fit.tried.end(),
                         [](const auto& one, const auto& other) { return one.size < other.size; });
    return terminal.paint("Does not fit", Colour::red) +
           fmt::format(": not even a {} of {}\n", what, smallest->size);
  }
  std::string text = terminal.paint(
      fmt::format("{} {} {}", batch ? "Largest" : "Longest", what, *fit.size), Colour::green);
  if (!setting.empty()) text += fmt::format(", {}", setting);
  if (fit.capped)
    text += batch ? " (the largest allowed)" : " (the longest allowed, or the model's maximum)";
  if (!fit.is_proven) text += " (the next larger one was not tried)";
  if (fit.recommended)
    text += fmt::format("; recommended {}, which leaves a margin", *fit.recommended);
  else if (fit.method == answer::Method::dry_run)
    text += "; none leaves the margin free";
  return in_lines(text, "", "  ", terminal);
}

std::string tried_table(const Fit& fit, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const TriedSize& tried : fit.tried)
    rows.push_back({std::to_string(tried.size), to_string(tried.process),
                    terminal.paint(tried.fits ? "fits" : "does not fit",
                                   tried.fits ? Colour::green : Colour::red)});
  return table(
      {{fit.over == answer::Over::batch ? "batch" : "tokens", true}, {"needs", true}, {""}}, rows,
      terminal);
}

// With the size that was found.
std::string settings_of(const Fit& fit, const Terminal& terminal) {
  if (!fit.settings) return "";
  model::Settings settings = *fit.settings;
  if (fit.size)
    (fit.over == answer::Over::batch ? settings.batch : settings.seq.emplace()) = *fit.size;
  return wrapped(answer::settings_words(settings), "", "", std::clamp(terminal.width, 20, 100));
}

}  // namespace

std::string fit_text(const Fit& fit, const Terminal& terminal, const std::string& setting) {
  return terminal.paint(fit.model, Colour::bold) + "\n" + settings_of(fit, terminal) +
         notes_text(fit.notes, terminal) +
         fmt::format("on {}, {} ({} usable)\n\n", fit.card.name, to_string(fit.card.total),
                     to_string(gpu::usable(fit.card))) +
         largest_text(fit, terminal, setting) + "\n" + tried_table(fit, terminal) +
         advice_text(fit.advice, &fit.card, !fit.fits(), /*dry_run=*/true, terminal);
}

ExitCode print_fit(const Fit& fit, bool as_json, const std::string& setting) {
  print(as_json ? to_line(to_json(fit)) + "\n" : fit_text(fit, standard_output(), setting));
  return fit.fits() ? kOk : kDoesNotFit;
}

}  // namespace headroom::cli
