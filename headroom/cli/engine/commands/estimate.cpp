// `headroom-engine estimate`: the dry run behind `headroom estimate`, for every requested card.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/answer/by_formula.h"
#include "headroom/answer/page.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
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
          .keep_trace = !request.at("trace").is_null() || !request.at("html").is_null()};
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
    done.back().card.name = done.back().report.card = card.name;
  }
  return done;
}

std::vector<std::string> notes_of(const Json& request, const model::NamedModel& model,
                                  const Estimate& estimate) {
  std::vector<std::string> notes;
  if (!model.note.empty()) notes.push_back(model.note);
  if (std::string warning = trace::warning_of(estimate.report); !warning.empty())
    notes.push_back(std::move(warning));
  for (std::string& note : unheeded_precision(model.config, estimate.settings))
    notes.push_back(std::move(note));
  if (auto decision = request.at("decision").get<std::string>(); !decision.empty())
    notes.push_back(std::move(decision));
  return notes;
}

answer::Answer answer_to(const Json& request, const model::NamedModel& model,
                         const std::vector<Estimate>& estimates) {
  const Estimate& tightest = *std::min_element(
      estimates.begin(), estimates.end(),
      [](const Estimate& one, const Estimate& other) { return one.spare() < other.spare(); });
  answer::Answer answer;
  answer.model = model.name;
  answer.defaulted = model.config.defaulted();
  answer.parameters = tightest.parameters;
  answer.trainable_parameters = tightest.trainable_parameters;
  answer.settings = tightest.settings;
  answer.report = tightest.report;
  answer.notes = notes_of(request, model, tightest);
  const std::vector<gpu::SimulatedCard> limited = limited_cards_of(request);
  if (!limited.empty())
    for (const Estimate& each : estimates)
      answer.cards.push_back({each.card, each.report.peak, each.fits(), each.spare()});
  if (request.at("techniques").get<bool>())
    answer.techniques = answer::techniques_by_formula(model.config, tightest.settings, limited);
  if (!tightest.fits() || request.at("advice").get<bool>())
    answer.advice = advise(model, tightest, options_of(request));
  return answer;
}

}  // namespace

ExitCode run_estimate(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const answer::Answer answer = answer_to(request, model, estimates(request, model, settings));
  const std::string trace = text_or_none(request.at("trace")),
                    page = text_or_none(request.at("html"));
  if (!trace.empty()) write_trace(answer.report, trace, answer::about(answer));
  if (!page.empty())
    answer::write_page(page, answer, *read_trace(answer.report, answer::about(answer)));
  tell_of_outputs("estimate", {trace, page});
  return print_answer(answer, request.at("json").get<bool>());
}

}  // namespace headroom::cli
