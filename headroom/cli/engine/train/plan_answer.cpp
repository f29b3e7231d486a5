#include "headroom/cli/engine/train/plan_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/forecast/step_time.h"

namespace headroom::cli {

PlanAnswer plan_answer(train::Step& step, std::int64_t rows) {
  PlanAnswer answer{.rows = rows, .plan = {}, .allowed_by = {}};
  // The plan for the same look: another job may take memory meanwhile.
  const auto cards = step.usable();
  if (cards) answer.free = cards->least();
  answer.plan = step.first_plan(rows, cards);
  answer.plan.micro_batch = largest_part(answer.plan, rows);
  answer.why_unpriced = step.why_unpriced();
  if (step.prices() == nullptr) return answer;
  const auto needed = step.prices()->needed(answer.plan, {.rows = rows});
  if (needed) answer.needed = needed->largest();
  answer.fits = !needed || !cards || needed->fits(*cards);
  const auto allowed = step.least_plan(rows), any = step.least_plan(rows, 1);
  if (answer.fits || !allowed || !any) return answer;
  const bool is_allowed = allowed->needed <= any->needed;
  answer.plan = is_allowed ? allowed->plan : any->plan;
  answer.needed = std::min(allowed->needed, any->needed);
  if (!is_allowed) answer.allowed_by = "min_batch_size=" + std::to_string(any->plan.micro_batch);
  return answer;
}

std::string to_string(const PlanAnswer& answer) {
  const std::string rows = fmt::format("a step of {} rows", answer.rows);
  const std::string plan = to_string(answer.plan);
  if (!answer.fits && *answer.needed <= *answer.free)
    return fmt::format("{} does not fit; with {} it does: {} needs {}, and {} are usable", rows,
                       answer.allowed_by, plan, to_string(*answer.needed), to_string(*answer.free));
  if (!answer.fits)
    return fmt::format(
        "{} does not fit: it needs at least {}, with {}{}, and only {} are usable", rows,
        to_string(*answer.needed), plan,
        answer.allowed_by.empty() ? "" : fmt::format(", which {} allows", answer.allowed_by),
        to_string(*answer.free));
  const std::int64_t parts = count_of_parts(answer.plan, answer.rows);
  std::string text = fmt::format("{} runs in {}: {}", rows,
                                 parts == 1 ? "one pass" : std::to_string(parts) + " parts", plan);
  if (!answer.why_unpriced.empty())
    return fmt::format("{}; its memory is not known ({})", text, answer.why_unpriced);
  if (!answer.needed) return text;
  text += "; it needs " + to_string(*answer.needed);
  return answer.free ? fmt::format("{}, and {} are usable", text, to_string(*answer.free)) : text;
}

Json to_json(const PlanAnswer& answer, double step_s) {
  return {{"schema", 1},
          {"plan", to_json(answer.plan)},
          {"effective_batch", answer.rows},
          {"needed_bytes", or_null(answer.needed)},
          {"free_bytes", answer.free ? Json(answer.free->count) : Json()},
          {"fits", answer.fits},
          {"allowed_by", answer.allowed_by.empty() ? Json() : Json(answer.allowed_by)},
          {"step_s", step_s}};
}

double step_seconds(const model::ModelConfig& config, model::Settings settings,
                    const train::Plan& plan, std::int64_t rows, const gpu::CatalogueCard* card) {
  for (const plan::Rung& rung : plan::rungs())
    if (plan.has(rung.name)) rung.put(settings, true);
  settings.accumulation = count_of_parts(plan, rows);
  const auto with_parts_of = [&](std::int64_t part) {
    settings.batch = part;
    return forecast::step_seconds(forecast::forecast_of(config, settings), card);
  };
  // The parts differ by a row at most.
  const double larger = static_cast<double>(rows % settings.accumulation) /
                        static_cast<double>(settings.accumulation);
  const double smaller = (1 - larger) * with_parts_of(smallest_part(plan, rows));
  return larger > 0 ? smaller + larger * with_parts_of(largest_part(plan, rows)) : smaller;
}

std::string step_time_text(double seconds) {
  if (seconds >= 0.95) return duration_text(Seconds(seconds));
  char text[32];
  std::snprintf(text, sizeof text, "%.2g ms", std::max(1000 * seconds, 0.01));
  return seconds >= 0.0995 ? std::to_string(static_cast<int>(1000 * seconds + 0.5)) + " ms" : text;
}

}  // namespace headroom::cli
