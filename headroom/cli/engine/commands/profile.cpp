// `headroom-engine profile`: profiles the training step behind `headroom profile`.
#include <nlohmann/json.hpp>

#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/view/profile_view.h"
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

answer::ProfileAnswer answer_of(const TrainingProfile& found, const model::NamedModel& model,
                                const gpu::SimulatedCard& card) {
  answer::ProfileAnswer answer{.model = model.name,
                               .parameters = found.parameters,
                               .trainable_parameters = found.trainable_parameters,
                               .settings = found.settings,
                               .fits = found.fits,
                               .steps = found.settings.steps};
  if (card.total < allocator::kUnlimited) answer.card = card;
  if (!model.note.empty()) answer.notes.push_back(model.note);
  return answer;
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
  const answer::ProfileAnswer answer = answer_of(found, model, card);
  if (request.at("json").get<bool>())
    return print_profile_json(answer, profile::to_json(found.profile, view));
  return print_profile_text(answer, profile::table(found.profile, view, profile_width()));
}

}  // namespace headroom::cli
