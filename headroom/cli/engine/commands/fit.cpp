// `headroom-engine fit`: the search behind `headroom fit`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/view/fit_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/estimate/advice.h"
#include "headroom/estimate/fit.h"
#include "headroom/model/stored_precision.h"

namespace headroom::cli {
namespace {

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
Json advice_for(const model::NamedModel& model, const estimate::FitResult& result,
                const estimate::FitOptions& options) {
  if (result.found.size) return Json::array();
  model::Settings smallest = result.settings;
  (options.over == estimate::Over::batch ? smallest.batch : *smallest.seq) = options.at_least;
  const auto keeps_size = [smallest](const model::Settings& changed) {
    return changed.batch == smallest.batch && changed.seq == smallest.seq;
  };
  const estimate::Options how{.rules = options.rules, .allocator = options.allocator};
  return to_json(advise(model, estimate_memory(model, smallest, result.card, how), how,
                        {.allows = keeps_size}));
}

}  // namespace

ExitCode run_fit(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const estimate::FitOptions options = fit_options_of(request);
  const std::vector<gpu::SimulatedCard> cards = cards_of(request);
  const auto result = estimate::fit(model, settings, cards, options);
  Json document = to_json(result);
  document["fits"] = result.found.size.has_value();
  document["advice"] = advice_for(model, result, options);
  document["notes"] = Json::array();
  const bool alike = std::all_of(cards.begin(), cards.end(), [&](const auto& card) {
    return card.name == cards.front().name && card.total == cards.front().total;
  });
  if (!alike)
    document["notes"].push_back("of " + std::to_string(cards.size()) +
                                " cards, fit uses the one with the least usable memory");
  if (!model.note.empty()) document["notes"].push_back(model.note);
  for (std::string& note : unheeded_precision(model.config, settings))
    document["notes"].push_back(std::move(note));
  if (const auto decision = request.at("decision").get<std::string>(); !decision.empty())
    document["notes"].push_back(decision);
  print(request.at("json").get<bool>() ? to_line(document) + "\n"
                                       : fit_text(document, standard_output()));
  return result.found.size ? kOk : kDoesNotFit;
}

}  // namespace headroom::cli
