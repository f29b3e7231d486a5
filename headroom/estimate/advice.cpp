#include "headroom/estimate/advice.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/forecast/advice.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/model/can_run.h"

namespace headroom::estimate {
namespace {

forecast::TechniqueOptions technique_options(const gpu::SimulatedCard& card,
                                             const AdviceOptions& wanted) {
  const bool is_limited = card.total != allocator::kUnlimited;
  return {.card = gpu::find_card(card.name),
          .room = is_limited ? std::optional(room_of(card)) : std::nullopt,
          .can_run = [](const model::Settings& settings) { return cannot_run(settings).empty(); },
          .allows = wanted.allows};
}

Advice run_dry(const model::NamedModel& model, const Estimate& now,
               const forecast::Technique& candidate, const Options& options) {
  const Estimate then = estimate_memory(model, candidate.settings, now.card,
                                        {.rules = options.rules, .allocator = options.allocator});
  const dryrun::Peak &peak = then.report.peak, &before = now.report.peak;
  const bool is_limited = now.card.total != allocator::kUnlimited;
  return {.change = candidate.option,
          .settings = candidate.settings,
          .saves = before.allocated - peak.allocated,
          .saves_process = before.process - peak.process,
          .reserved = peak.reserved,
          .process = peak.process,
          .time_factor = candidate.time_factor,
          .changes_training = candidate.changes_training,
          .fits = is_limited ? std::optional(then.fits()) : std::nullopt};
}

Advice by_formula(const forecast::Technique& technique) {
  return {.change = technique.option,
          .settings = technique.settings,
          .saves = technique.saves,
          .saves_process = technique.saves_process,
          .reserved = technique.needs,
          .process = technique.process,
          .time_factor = technique.time_factor,
          .changes_training = technique.changes_training,
          .fits = technique.fits,
          .by_formula = true};
}

}  // namespace

std::vector<Advice> advise(const model::NamedModel& model, const Estimate& now,
                           const Options& options, const AdviceOptions& wanted) {
  const auto techniques = technique_options(now.card, wanted);
  std::vector<Advice> advice;
  // Asks for two spare techniques, in case some save nothing.
  for (const forecast::Technique& candidate :
       forecast::cheapest_help(model.config, now.settings, techniques, wanted.wanted + 2)) {
    if (advice.size() == wanted.wanted) break;
    Advice one = run_dry(model, now, candidate, options);
    if (one.saves.count > 0) advice.push_back(std::move(one));
  }
  const auto fits = [](const Advice& one) { return one.fits == true; };
  if (!techniques.room || now.fits() || std::any_of(advice.begin(), advice.end(), fits))
    return advice;
  for (const forecast::Technique& one :
       enough_but_cannot_run(model.config, now.settings, techniques))
    advice.push_back(by_formula(one));
  return advice;
}

Json to_json(const std::vector<Advice>& advice) {
  Json list = Json::array();
  for (const Advice& one : advice)
    list.push_back({{"change", one.change},
                    {"saves_bytes", one.saves.count},
                    {"time_factor", one.time_factor},
                    {"changes_training", one.changes_training},
                    {"peak_reserved_bytes", one.reserved.count},
                    {"peak_process_bytes", one.process.count},
                    {"saves_process_bytes", one.saves_process.count},
                    {"fits", one.fits ? Json(*one.fits) : Json()},
                    {"method", one.by_formula ? "formula" : "dry-run"},
                    {"can_run", !one.by_formula}});
  return list;
}

}  // namespace headroom::estimate
