// `headroom-engine profile`: profiles the training step behind `headroom profile`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/estimate/profile_training.h"

namespace headroom::cli {
namespace {

using estimate::TrainingProfile;

profile::ProfileView view_of(const Json& request) {
  return {.sort_by = request.at("sort_by").get<std::string>(),
          .row_limit = request.at("row_limit").get<std::size_t>(),
          .group_by = profile::group_named(request.at("group_by").get<std::string>())};
}

// A pipe or file has no width, unless COLUMNS gives one.
std::size_t table_width() {
  const Terminal terminal = standard_output();
  return terminal.has_width ? static_cast<std::size_t>(std::clamp(terminal.width, 60, 100)) : 100;
}

Json device_json(const gpu::SimulatedCard& card) {
  return {{"name", card.name},
          {"total_bytes", card.total.count},
          {"usable_bytes", (card.total - card.reserved).count}};
}

Json document(const TrainingProfile& found, const model::NamedModel& model,
              const gpu::SimulatedCard& card, const profile::ProfileView& view) {
  Json json = profile::to_json(found.profile, view);
  json["model"] = {{"name", model.name},
                   {"parameters", found.parameters},
                   {"trainable_parameters", found.trainable_parameters}};
  json["settings"] = model::to_json(found.settings);
  const bool limited = card.total < allocator::kUnlimited;
  json["device"] = limited ? device_json(card) : Json();
  json["fits"] = limited ? Json(found.fits) : Json();
  json["steps"] = found.settings.steps;
  json["notes"] = Json::array();
  if (!model.note.empty()) json["notes"].push_back(model.note);
  return json;
}

std::string text(const TrainingProfile& found, const std::string& model,
                 const gpu::SimulatedCard& card, const profile::ProfileView& view) {
  std::string text = wrapped(model + ", " + settings_text(found.settings) + ": " +
                                 counted(found.settings.steps, "step") + " on " + card.name,
                             "", "  ", static_cast<int>(table_width()));
  if (!found.fits) text += "It does not fit there: the figures are of a card without limit.\n";
  return text + "\n" + profile::table(found.profile, view, table_width());
}

}  // namespace

ExitCode run_profile(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const gpu::SimulatedCard card = cards_of(request).front();
  const profile::ProfileView view = view_of(request);
  (void)profile::rows({}, view);  // refuses a wrong --sort-by before the run
  const TrainingProfile found = estimate::profile_training(
      model, settings, card, {.rules = rules_of(request), .allocator = allocator_of(request)});
  const std::string trace = text_or_none(request.at("trace"));
  if (!trace.empty()) profile::write_chrome(found.profile, trace);
  tell_of_outputs("profile", {trace});
  if (request.at("json").get<bool>())
    print(to_line(document(found, model, card, view)) + "\n");
  else
    print(text(found, model.name, card, view));
  return kOk;
}

}  // namespace headroom::cli
