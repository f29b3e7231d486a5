#include "headroom/answer/by_formula.h"

#include <algorithm>
#include <utility>

#include "headroom/base/time.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/can_run.h"
#include "headroom/model/stored_precision.h"
#include "headroom/plan/cheapest_help.h"

namespace headroom::answer {
namespace {

using forecast::Forecast;
using plan::Saving;

// Active bytes are the rounded tensors, without workspaces.
trace::Peak peak_of(const Forecast& forecast) {
  const trace::Parts& parts = forecast.at_peak;
  const Bytes allocated = parts.total();
  const bool trains = forecast.settings.mode == model::Mode::train;
  return {.allocated = allocated,
          .active = allocated - parts.workspace,
          .requested = allocated - parts.rounding,
          .reserved = forecast.reserved,
          .process = forecast.process,
          .phase = forecast.phase,
          .step = static_cast<std::uint32_t>(trains ? std::min(2, forecast.settings.steps) : 1)};
}

std::vector<trace::ModulePeak> modules_of(const Forecast& forecast) {
  std::vector<trace::ModulePeak> modules;
  for (const auto& module : forecast.by_module) modules.push_back({module.name, module.bytes});
  std::stable_sort(modules.begin(), modules.end(),
                   [](const auto& one, const auto& other) { return one.peak > other.peak; });
  return modules;
}

trace::Report report_of(const Forecast& forecast) {
  trace::Report report;
  report.peak = peak_of(forecast);
  report.at_peak = forecast.at_peak;
  report.by_module = modules_of(forecast);
  report.per_step = {
      {.step = report.peak.step, .allocated = report.peak.allocated, .after = std::nullopt}};
  return report;
}

std::vector<std::string> notes_of(const model::NamedModel& model, const Forecast& forecast) {
  std::vector<std::string> notes;
  if (!model.note.empty()) notes.push_back(model.note);
  for (std::string& note : unheeded_precision(model.config, forecast.settings))
    notes.push_back(std::move(note));
  const auto& defaulted = model.config.defaulted();  // the answer lists these separately
  for (const std::string& assumed : forecast.assumed)
    if (std::find(defaulted.begin(), defaulted.end(), assumed) == defaulted.end())
      notes.push_back(assumed);
  if (forecast.on_host.count > 0)
    notes.push_back("In the host's memory: " + to_string(forecast.on_host));
  if (forecast.on_disk.count > 0) notes.push_back("On disk: " + to_string(forecast.on_disk));
  return notes;
}

plan::SavingOptions options_for(const std::vector<gpu::SimulatedCard>& cards) {
  plan::SavingOptions options;
  options.can_run = [](const model::Settings& settings) { return cannot_run(settings).empty(); };
  options.gpus = static_cast<int>(std::max<std::size_t>(1, cards.size()));
  const auto smallest = std::min_element(
      cards.begin(), cards.end(),
      [](const auto& one, const auto& other) { return room_of(one) < room_of(other); });
  if (smallest == cards.end()) return options;
  options.card = gpu::find_card(smallest->name);
  options.room = room_of(*smallest);
  return options;
}

}  // namespace

Answer by_formula(const model::NamedModel& model, const model::Settings& settings,
                  const std::vector<gpu::SimulatedCard>& cards) {
  const Clock::time_point begin = Clock::now();
  const auto forecast_on = [&](const gpu::SimulatedCard* card) {
    return forecast::forecast_of(model.config, settings,
                                 card != nullptr ? gpu::find_profile(card->profile) : nullptr);
  };
  Answer answer;
  for (const gpu::SimulatedCard& card : cards) {
    const trace::Peak peak = peak_of(forecast_on(&card));
    const Bytes spare = gpu::usable(card) - peak.process;
    answer.cards.push_back({card, peak, spare >= Bytes{0}, spare});
  }
  const OnCard* tightest = answer.tightest();
  const Forecast forecast = forecast_on(tightest != nullptr ? &tightest->card : nullptr);
  answer.method = Method::formula;
  answer.model = model.name;
  answer.defaulted = model.config.defaulted();
  answer.parameters = forecast.parameters;
  answer.trainable_parameters = forecast.trainable_parameters;
  answer.settings = forecast.settings;
  answer.report = report_of(forecast);
  answer.report.took_s = Seconds(Clock::now() - begin).count();
  answer.on_host = forecast.on_host;
  answer.on_disk = forecast.on_disk;
  answer.notes = notes_of(model, forecast);
  return answer;
}

std::vector<Saving> techniques_by_formula(const model::ModelConfig& config,
                                          const model::Settings& settings,
                                          const std::vector<gpu::SimulatedCard>& cards) {
  std::vector<Saving> all = plan::savings(config, settings, options_for(cards));
  // The table is sorted by savings; only advice puts the best first.
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.saves > other.saves; });
  return all;
}

std::vector<Saving> advice_by_formula(const model::ModelConfig& config,
                                      const model::Settings& settings,
                                      const std::vector<gpu::SimulatedCard>& cards) {
  plan::SavingOptions options = options_for(cards);
  if (!cannot_run(settings).empty()) options.can_run = {};
  std::vector<Saving> all = plan::cheapest_help(config, settings, options);
  const auto fits = [](const Saving& one) { return one.fits; };
  if (options.room && std::none_of(all.begin(), all.end(), fits))
    for (Saving& one : enough_but_cannot_run(config, settings, options))
      all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::answer
