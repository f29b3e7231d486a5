// `headroom-engine fit`: the search behind `headroom fit`.
#include <nlohmann/json.hpp>

#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/view/fit_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/estimate/fit.h"

namespace headroom::cli {
namespace {

estimate::FitOptions options_of(const Json& request) {
  estimate::FitOptions options;
  options.over = request.at("over") == "seq" ? estimate::Over::seq : estimate::Over::batch;
  options.at_least = request.at("at_least").get<std::int64_t>();
  if (const Json& most = request.at("at_most"); !most.is_null())
    options.at_most = most.get<std::int64_t>();
  const Json& margin = request.at("margin");
  if (margin.contains("bytes"))
    options.margin.bytes = Bytes{margin.at("bytes").get<std::int64_t>()};
  else
    options.margin.share = margin.at("share").get<double>();
  options.rules = rules_of(request);
  options.allocator = allocator_of(request);
  return options;
}

}  // namespace

ExitCode run_fit(const Json& request) {
  const auto model = formula::model_named(request.at("model").get<std::string>());
  const auto settings = formula::settings_from_json(request.at("settings"));
  const auto result = estimate::fit(model, settings, cards_of(request), options_of(request));
  Json document = to_json(result);
  document["notes"] = Json::array();
  if (!model.note.empty()) document["notes"].push_back(model.note);
  if (const auto decision = request.at("decision").get<std::string>(); !decision.empty())
    document["notes"].push_back(decision);
  print(request.at("json").get<bool>() ? to_line(document) + "\n"
                                       : fit_text(document, standard_output()));
  return result.found.size ? kOk : kDoesNotFit;
}

}  // namespace headroom::cli
