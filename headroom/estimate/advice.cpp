#include "headroom/estimate/advice.h"

#include <nlohmann/json.hpp>

#include "headroom/formula/advice.h"
#include "headroom/formula/can_run.h"
#include "headroom/gpu/catalogue.h"

namespace headroom::estimate {
namespace {

formula::TechniqueOptions technique_options(const gpu::SimulatedCard& card) {
  const bool is_limited = card.total != allocator::kUnlimited;
  return {
      .card = gpu::find_card(card.name),
      .room = is_limited ? std::optional(room_of(card)) : std::nullopt,
      .can_run = [](const formula::Settings& settings) { return cannot_run(settings).empty(); }};
}

}  // namespace

std::vector<Advice> advise(const formula::NamedModel& model, const Estimate& now,
                           const Options& options, std::size_t wanted) {
  // Some are kept in hand for those that save nothing.
  const auto candidates =
      formula::cheapest_help(model.config, now.settings, technique_options(now.card), wanted + 2);
  const bool is_limited = now.card.total != allocator::kUnlimited;
  std::vector<Advice> advice;
  for (const formula::Technique& candidate : candidates) {
    if (advice.size() == wanted) break;
    const Estimate then = estimate_memory(model, candidate.settings, now.card,
                                          {.rules = options.rules, .allocator = options.allocator});
    const Bytes saves = now.report.peak.allocated - then.report.peak.allocated;
    if (saves.count <= 0) continue;
    advice.push_back({.change = candidate.option,
                      .settings = candidate.settings,
                      .saves = saves,
                      .reserved = then.report.peak.reserved,
                      .time_factor = candidate.time_factor,
                      .changes_training = candidate.changes_training,
                      .fits = is_limited ? std::optional(then.fits()) : std::nullopt});
  }
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
                    {"fits", one.fits ? Json(*one.fits) : Json()}});
  return list;
}

}  // namespace headroom::estimate
