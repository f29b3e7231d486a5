// `headroom-engine estimate`: the dry run behind `headroom estimate`, for every requested card.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/core/view/techniques_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/dryrun/describe.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/advice.h"
#include "headroom/estimate/estimate.h"
#include "headroom/model/stored_precision.h"

namespace headroom::cli {
namespace {

using estimate::Estimate;

bool alike(const gpu::SimulatedCard& one, const gpu::SimulatedCard& other) {
  return one.total == other.total && one.reserved == other.reserved && one.profile == other.profile;
}

estimate::Options options_of(const Json& request) {
  return {.rules = rules_of(request),
          .allocator = allocator_of(request),
          .keep_trace = !request.at("trace").is_null()};
}

// One estimate per card; identical cards share a run.
std::vector<Estimate> estimates(const Json& request, const model::NamedModel& model,
                                const model::Settings& settings) {
  std::vector<Estimate> done;
  for (const gpu::SimulatedCard& card : cards_of(request)) {
    const auto same = std::find_if(done.begin(), done.end(), [&](const Estimate& estimate) {
      return alike(estimate.card, card);
    });
    done.push_back(
        same != done.end() ? *same : estimate_memory(model, settings, card, options_of(request)));
    done.back().card.name = card.name;
  }
  return done;
}

Json notes_of(const model::NamedModel& model, const Estimate& estimate) {
  Json notes = Json::array();
  if (!model.note.empty()) notes.push_back(model.note);
  if (const std::string warning = dryrun::warning_of(estimate.report); !warning.empty())
    notes.push_back(warning);
  for (std::string& note : unheeded_precision(model.config, estimate.settings))
    notes.push_back(std::move(note));
  return notes;
}

const Estimate& tightest_of(const std::vector<Estimate>& estimates) {
  return *std::min_element(
      estimates.begin(), estimates.end(),
      [](const Estimate& one, const Estimate& other) { return one.spare() < other.spare(); });
}

// Advice if it does not fit, or on request.
Json advice_for(const Json& request, const model::NamedModel& model, const Estimate& estimate) {
  if (estimate.fits() && !request.at("advice").get<bool>()) return Json::array();
  return to_json(advise(model, estimate, options_of(request)));
}

Json document_of(const Json& request, const model::NamedModel& model,
                 const std::vector<Estimate>& estimates) {
  const Estimate& tightest = tightest_of(estimates);
  Json document = to_json(tightest);
  document["model"]["defaulted"] = model.config.defaulted();
  document["notes"] = notes_of(model, tightest);
  if (const auto decision = request.at("decision").get<std::string>(); !decision.empty())
    document["notes"].push_back(decision);
  if (request.at("techniques").get<bool>())
    document["techniques"] =
        techniques_json(model.config, tightest.settings, limited_cards_of(request));
  document["advice"] = advice_for(request, model, tightest);
  if (estimates.size() > 1)
    for (const Estimate& each : estimates)
      document["devices"].push_back({{"name", each.card.name},
                                     {"total_bytes", each.card.total.count},
                                     {"peak", dryrun::to_json(each.report).at("peak")},
                                     {"fits", each.fits()},
                                     {"spare_bytes", each.spare().count}});
  return document;
}

}  // namespace

ExitCode run_estimate(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const std::vector<Estimate> done = estimates(request, model, settings);
  const Json document = document_of(request, model, done);
  if (const Json& path = request.at("trace"); !path.is_null())
    dryrun::write_trace(tightest_of(done).report, path.get<std::string>());
  print(request.at("json").get<bool>() ? to_line(document) + "\n"
                                       : estimate_text(document, standard_output()));
  return document.at("fits") == Json(false) ? kDoesNotFit : kOk;
}

}  // namespace headroom::cli
