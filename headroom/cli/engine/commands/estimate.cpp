// `headroom-engine estimate`: the dry run behind `headroom estimate`, for every requested card.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "headroom/cli/core/answer_by_formula.h"
#include "headroom/cli/core/output_files.h"
#include "headroom/cli/core/view/estimate_view.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cli/engine/request.h"
#include "headroom/dryrun/describe.h"
#include "headroom/estimate/advice.h"
#include "headroom/estimate/estimate.h"
#include "headroom/model/stored_precision.h"
#include "headroom/page/page.h"

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
  if (std::string warning = dryrun::warning_of(estimate.report); !warning.empty())
    notes.push_back(std::move(warning));
  for (std::string& note : unheeded_precision(model.config, estimate.settings))
    notes.push_back(std::move(note));
  if (auto decision = request.at("decision").get<std::string>(); !decision.empty())
    notes.push_back(std::move(decision));
  return notes;
}

Answer answer_to(const Json& request, const model::NamedModel& model,
                 const std::vector<Estimate>& estimates) {
  const Estimate& tightest = *std::min_element(
      estimates.begin(), estimates.end(),
      [](const Estimate& one, const Estimate& other) { return one.spare() < other.spare(); });
  Answer answer;
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
    answer.techniques = techniques_by_formula(model.config, tightest.settings, limited);
  if (!tightest.fits() || request.at("advice").get<bool>())
    answer.advice = advise(model, tightest, options_of(request));
  return answer;
}

// What the trace and the page say about the run: what was chosen, and what everyone asks about.
trace::About about_of(const Answer& answer) {
  trace::About about;
  about.facts = {{"model", answer.model}};
  const Json settings = model::to_json(answer.settings), usual = model::to_json(model::Settings{});
  const std::set<std::string> asked{"batch", "seq", "dtype", "optimizer", "checkpointing"};
  for (const auto& [name, value] : settings.items())
    if (!value.is_null() && (asked.contains(name) || value != usual.value(name, Json())))
      about.facts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return about;
}

// Whether it fits, what was refused and what would have fitted.
std::vector<std::string> sentences_of(const Answer& answer) {
  std::vector<std::string> sentences;
  if (const CardAnswer* card = answer.tightest())
    sentences.push_back(
        verdict_text(*card) +
        (answer.cards.size() > 1
             ? ", the least room of " + std::to_string(answer.cards.size()) + " cards"
             : ""));
  if (const auto& refusal = answer.report.out_of_memory)
    sentences.push_back("a request of " + to_string(refusal->requested) + " did not fit: " +
                        to_string(refusal->free) + " of " + to_string(refusal->capacity) +
                        " were free; the picture is that of a run without a limit");
  for (const plan::Saving& change : answer.advice)
    sentences.push_back(change.option + " needs " + to_string(change.process) +
                        (change.fits ? " and fits" : ""));
  sentences.insert(sentences.end(), answer.notes.begin(), answer.notes.end());
  return sentences;
}

void write_page(const Answer& answer, const std::string& path) {
  const auto trace = read_trace(answer.report, about_of(answer));
  write_page(path, page::timeline_of(*trace),
             {.title = answer.model + ", " + settings_text(answer.settings),
              .notes = sentences_of(answer)});
}

}  // namespace

ExitCode run_estimate(const Json& request) {
  const auto model = model::model_named(request.at("model").get<std::string>());
  const auto settings = model::settings_from_json(request.at("settings"));
  const Answer answer = answer_to(request, model, estimates(request, model, settings));
  const std::string trace = text_or_none(request.at("trace")),
                    page = text_or_none(request.at("html"));
  if (!trace.empty()) write_trace(answer.report, trace, about_of(answer));
  if (!page.empty()) write_page(answer, page);
  tell_of_outputs("estimate", {trace, page});
  return print_answer(answer, request.at("json").get<bool>());
}

}  // namespace headroom::cli
