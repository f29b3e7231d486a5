// `headroom-engine fit`: the search behind `headroom fit`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/cli/core/view/fit_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/estimate/advice.h"
#include "headroom/estimate/fit.h"
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
  const model::Settings smallest = estimate::with(result.settings, options.over, options.at_least);
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

}  // namespace

ExitCode run_fit(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const estimate::FitOptions options = fit_options_of(request);
  const std::vector<gpu::SimulatedCard> cards = cards_of(request);
  const FitResult result = estimate::fit(model, settings, cards, options);
  answer::Fit answer = answer_of(result);
  answer.advice = advice_for(model, result, options);
  answer.notes = notes_of(request, model, settings, cards);
  return print_fit(answer, request.at("json").get<bool>());
}

}  // namespace headroom::cli
