// `headroom-engine fit`: the search behind `headroom fit`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/cli/core/answer.h"
#include "headroom/cli/core/view/advice_view.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/estimate/advice.h"
#include "headroom/estimate/fit.h"
#include "headroom/machine/cards_to_fill.h"
#include "headroom/model/stored_precision.h"

namespace headroom::cli {
namespace {

using estimate::FitResult;

estimate::FitOptions fit_options_of(const Json& request) {
  estimate::FitOptions options;
  options.over = request.at("over") == "seq" ? estimate::Over::seq : estimate::Over::batch;
  options.at_least = request.at("at_least").get<std::int64_t>();
  if (const Json& most = request.at("at_most"); !most.is_null())
    options.at_most = most.get<std::int64_t>();
  const Json& margin = request.at("margin");
  if (margin.contains("bytes"))
    options.margin.bytes = bytes_from(margin.at("bytes"));
  else
    options.margin.share = margin.at("share").get<double>();
  options.rules = rules_of(request);
  options.allocator = allocator_of(request);
  return options;
}

// If even the smallest size does not fit: changes that make it fit. They keep the size, which is
// what the search varies.
std::vector<plan::Saving> advice_for(const model::NamedModel& model, const FitResult& result,
                                     const estimate::FitOptions& options) {
  if (result.found.size) return {};
  const model::Settings smallest = with(result.settings, options.over, options.at_least);
  const auto keeps_size = [smallest](const model::Settings& changed) {
    return changed.batch == smallest.batch && changed.seq == smallest.seq;
  };
  const estimate::Options how{.rules = options.rules, .allocator = options.allocator};
  return advise(model, estimate_memory(model, smallest, result.card, how), how,
                {.allows = keeps_size});
}

std::vector<std::string> notes_of(const Json& request, const model::NamedModel& model,
                                  const model::Settings& settings,
                                  const std::vector<gpu::SimulatedCard>& cards) {
  std::vector<std::string> notes;
  const bool alike = std::all_of(cards.begin(), cards.end(), [&](const auto& card) {
    return card.name == cards.front().name && card.total == cards.front().total;
  });
  if (!alike)
    notes.push_back("of " + std::to_string(cards.size()) +
                    " cards, fit uses the one with the least usable memory");
  if (!model.note.empty()) notes.push_back(model.note);
  for (std::string& note : unheeded_precision(model.config, settings))
    notes.push_back(std::move(note));
  if (auto decision = request.at("decision").get<std::string>(); !decision.empty())
    notes.push_back(std::move(decision));
  return notes;
}

// ---- The answer as text ----

std::string size_text(const FitResult& result, const Terminal& terminal) {
  const bool batch = result.over == estimate::Over::batch;
  const std::string what = batch ? "batch" : "sequence";
  const estimate::Largest& found = result.found;
  if (!found.size) {
    const auto smallest =
        std::min_element(found.probes.begin(), found.probes.end(),
                         [](const auto& one, const auto& other) { return one.size < other.size; });
    return terminal.paint("Does not fit", Colour::red) + ": not even a " + what + " of " +
           std::to_string(smallest->size) + "\n";
  }
  std::string text = terminal.paint(
      (batch ? "Largest " : "Longest ") + what + " " + std::to_string(*found.size), Colour::green);
  if (found.capped)
    text += batch ? " (the largest allowed)" : " (the longest allowed, or the model's maximum)";
  if (!found.is_proven) text += " (the next larger one was not tried)";
  text += found.recommended
              ? "; recommended " + std::to_string(*found.recommended) + ", which leaves a margin"
              : "; none leaves the margin free";
  return in_lines(text, "", "  ", terminal);
}

std::string probes_table(const FitResult& result, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const estimate::Probe& probe : result.found.probes)
    rows.push_back({std::to_string(probe.size), to_string(probe.peak_reserved + result.context()),
                    terminal.paint(probe.fits ? "fits" : "does not fit",
                                   probe.fits ? Colour::green : Colour::red)});
  return table(
      {{result.over == estimate::Over::batch ? "batch" : "tokens", true}, {"needs", true}, {""}},
      rows, terminal);
}

std::string fit_text(const FitResult& result, const std::vector<std::string>& notes,
                     const std::vector<plan::Saving>& advice, const Terminal& terminal) {
  const gpu::SimulatedCard& card = result.card;
  const model::Settings settings =
      result.found.size ? with(result.settings, result.over, *result.found.size) : result.settings;
  return terminal.paint(result.model, Colour::bold) + "\n" +
         wrapped(settings_text(settings), "", "", std::clamp(terminal.width, 20, 100)) +
         notes_text(notes, terminal) + "on " + card.name + ", " + to_string(card.total) + " (" +
         to_string(machine::usable(card)) + " usable)\n\n" + size_text(result, terminal) + "\n" +
         probes_table(result, terminal) +
         advice_text(advice, &card, !result.found.size, /*dry_run=*/true, terminal);
}

}  // namespace

ExitCode run_fit(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const estimate::FitOptions options = fit_options_of(request);
  const std::vector<gpu::SimulatedCard> cards = cards_of(request);
  const FitResult result = estimate::fit(model, settings, cards, options);
  const auto advice = advice_for(model, result, options);
  const auto notes = notes_of(request, model, settings, cards);
  if (request.at("json").get<bool>()) {
    Json document = to_json(result);
    document["fits"] = result.found.size.has_value();
    document["advice"] = to_json(advice, /*limited=*/true, /*dry_run=*/true);
    document["notes"] = notes;
    print(to_line(document) + "\n");
  } else {
    print(fit_text(result, notes, advice, standard_output()));
  }
  return result.found.size ? kOk : kDoesNotFit;
}

}  // namespace headroom::cli
