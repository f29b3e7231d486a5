#include "headroom/cli/engine/train/spill_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/cli/core/view/plan_view.h"
#include "headroom/plan/technique.h"

namespace headroom::cli {
namespace {

// "micro_batch=12 loss=fused": what makes this plan of the other one.
std::string keys_of(const train::Plan& plan, const train::Plan& now) {
  std::vector<std::string> words;
  if (plan.micro_batch != now.micro_batch)
    words.push_back("micro_batch=" + std::to_string(plan.micro_batch));
  for (const plan::Rung& rung : plan::rungs())
    if (plan.has(rung.name) && !now.has(rung.name)) words.push_back(rung.key);
  return join(words, " ");
}

}  // namespace

Json spill_document(const train::Step& step) {
  const auto use = step.spilled();
  if (!use) return nullptr;
  return {{"refused", use->refused},
          {"rescued", use->rescued},
          {"moved_bytes", use->moved.count},
          {"moved_in_last_step_bytes", use->moved_in_step.count},
          {"peak_waiting_bytes", use->peak_waiting.count},
          {"needed_bytes", use->needed.count},
          {"seconds", use->seconds}};
}

std::string spill_words(const train::Step& step, std::int64_t rows,
                        const config::Training& training, const model::ModelConfig& config,
                        const std::vector<const gpu::CatalogueCard*>& cards) {
  const auto use = step.spilled();
  if (!use) return "";
  std::string words = "spill: " + to_string(*use);
  if (use->moved_in_step == Bytes{}) return words;
  // All cards move at the same time, each over its own link.
  const double moving = 2 * static_cast<double>(use->moved_in_step.count) /
                        static_cast<double>(step.devices().size()) /
                        (cards.front()->pcie_gb_s * 1e9);
  words += fmt::format("; in the last step {} moved, which takes about {} with the times of {}",
                       to_string(use->moved_in_step), step_time_text(moving), cards.front()->brief);
  const auto other =
      step.keeps_plan() ? step.plan_without_spill(rows) : std::optional<train::Plan>();
  if (!other) return words;
  PlanAnswer now{.rows = rows, .layout = step.layout(), .plan = step.plan(), .allowed_by = {}};
  PlanAnswer then = now;
  then.plan = *other;
  for (PlanAnswer* one : {&now, &then})
    one->plan.micro_batch = largest_part(one->plan, one->rows_of_replica());
  const double more =
      step_seconds(training, config, then, cards) - step_seconds(training, config, now, cards);
  const std::string keys = keys_of(then.plan, now.plan);
  if (more >= moving || keys.empty()) return words;
  return words + fmt::format("; cheaper: {} needs no moves and takes about {} more", keys,
                             step_time_text(std::max(more, 0.0)));
}

}  // namespace headroom::cli
