#include "headroom/estimate/advice.h"

#include <algorithm>
#include <utility>

#include "headroom/gpu/catalogue.h"
#include "headroom/model/can_run.h"
#include "headroom/plan/cheapest_help.h"

namespace headroom::estimate {
namespace {

using plan::Saving;

plan::SavingOptions technique_options(const gpu::SimulatedCard& card, const AdviceOptions& wanted) {
  const bool is_limited = card.total != allocator::kUnlimited;
  return {.card = gpu::find_card(card.name),
          .room = is_limited ? std::optional(room_of(card)) : std::nullopt,
          .can_run = [](const model::Settings& settings) { return cannot_run(settings).empty(); },
          .allows = wanted.allows};
}

Saving run_dry(const model::NamedModel& model, const Estimate& now, Saving technique,
               const Options& options) {
  const Estimate then = estimate_memory(model, technique.settings, now.card,
                                        {.rules = options.rules, .allocator = options.allocator});
  const trace::Peak &peak = then.report.peak, &before = now.report.peak;
  technique.saves = before.allocated - peak.allocated;
  technique.saves_process = before.process - peak.process;
  technique.needs = peak.reserved;
  technique.process = peak.process;
  technique.fits = then.fits();
  return technique;
}

}  // namespace

std::vector<Saving> advise(const model::NamedModel& model, const Estimate& now,
                           const Options& options, const AdviceOptions& wanted) {
  const auto how = technique_options(now.card, wanted);
  std::vector<Saving> advice;
  // Asks for two spare techniques, in case some save nothing.
  for (const Saving& candidate :
       plan::cheapest_help(model.config, now.settings, how, wanted.wanted + 2)) {
    if (advice.size() == wanted.wanted) break;
    Saving one = run_dry(model, now, candidate, options);
    if (one.saves.count > 0) advice.push_back(std::move(one));
  }
  const auto fits = [](const Saving& one) { return one.fits; };
  if (how.room && !now.fits() && std::none_of(advice.begin(), advice.end(), fits))
    for (Saving& one : enough_but_cannot_run(model.config, now.settings, how))
      advice.push_back(std::move(one));
  return advice;
}

}  // namespace headroom::estimate
