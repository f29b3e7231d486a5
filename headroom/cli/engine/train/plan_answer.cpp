#include "headroom/cli/engine/train/plan_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/plan/model_pricer.h"
#include "headroom/plan/search.h"
#include "headroom/train/model_team.h"

namespace headroom::cli {
std::string to_string(const train::PerStage& all, int stages) {
  std::vector<std::string> words;
  for (int stage = 0; stage < stages; ++stage)
    words.push_back(to_string(all.of(static_cast<std::size_t>(stage))));
  const bool are_equal = std::all_of(words.begin(), words.end(),
                                     [&](const std::string& one) { return one == words.front(); });
  if (stages == 1) return words.front();
  return are_equal ? words.front() + " a card" : listed(words);
}

PlanAnswer plan_answer(train::Step& step, std::int64_t rows) {
  PlanAnswer answer{.rows = rows, .layout = step.layout(), .plan = {}, .allowed_by = {}};
  // The plan for the same look: another job may take memory meanwhile.
  answer.free = step.usable();
  answer.plan = step.first_plan(rows, answer.free);
  answer.plan.micro_batch = largest_part(answer.plan, answer.rows_of_replica());
  answer.why_unpriced = step.why_unpriced();
  if (step.prices() == nullptr) return answer;
  const train::Work work{.rows = answer.rows_of_replica()};
  answer.needed = step.prices()->needed(answer.plan, work);
  answer.peak = step.prices()->peaks(answer.plan, work);
  answer.fits = !answer.needed || !answer.free || answer.needed->fits(*answer.free);
  answer.spills = !answer.fits && step.keeps_plan();
  if (answer.spills) return answer;
  const auto allowed = step.least_plan(rows), any = step.least_plan(rows, 1);
  if (answer.fits || !allowed || !any) return answer;
  const bool is_allowed = allowed->needed <= any->needed;
  answer.plan = is_allowed ? allowed->plan : any->plan;
  answer.needed = step.prices()->needed(answer.plan, work);
  answer.peak = step.prices()->peaks(answer.plan, work);
  if (!is_allowed) answer.allowed_by = "min_batch_size=" + std::to_string(any->plan.micro_batch);
  return answer;
}

std::string to_string(const PlanAnswer& answer) {
  const int stages = answer.layout.stages, replicas = answer.layout.replicas;
  const std::string shared =
      replicas == 1 ? "" : fmt::format(", {} a replica,", answer.rows_of_replica());
  const std::string rows = fmt::format("a step of {} rows{}", answer.rows, shared);
  const std::string plan = to_string(answer.plan);
  const char* const needs = stages == 1 ? "it needs" : "its stages need";
  const std::string needed = answer.needed ? to_string(*answer.needed, stages) : "";
  const std::string free = answer.free ? to_string(*answer.free, stages) : "";
  if (answer.spills)
    return fmt::format(
        "{} runs as {}: {} {}, and {} are usable; what does not fit waits on the host", rows, plan,
        needs, needed, free);
  if (!answer.fits && !answer.allowed_by.empty() && answer.needed->fits(*answer.free))
    return fmt::format("{} does not fit; with {} it does: {} needs {}, and {} are usable", rows,
                       answer.allowed_by, plan, needed, free);
  if (!answer.fits)
    return fmt::format(
        "{} does not fit: {} at least {}, with {}{}, and only {} are usable", rows, needs, needed,
        plan, answer.allowed_by.empty() ? "" : fmt::format(", which {} allows", answer.allowed_by),
        free);
  const std::int64_t parts = count_of_parts(answer.plan, answer.rows_of_replica());
  std::string text = fmt::format("{} runs in {}: {}", rows,
                                 parts == 1 ? "one pass" : std::to_string(parts) + " parts", plan);
  if (!answer.why_unpriced.empty())
    return fmt::format("{}; its memory is not known ({})", text, answer.why_unpriced);
  if (!answer.needed) return text;
  text += fmt::format("; {} {}", needs, needed);
  return answer.free ? fmt::format("{}, and {} are usable", text, free) : text;
}

Json to_json(const PlanAnswer& answer, const std::vector<c10::Device>& devices, double step_s,
             const std::string& rates) {
  const auto count = [](const std::optional<train::PerStage>& all, std::size_t stage) {
    return all ? Json(all->of(stage).count) : Json();
  };
  Json cards = Json::array();
  std::size_t tightest = 0;  // stage
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const int replica = answer.layout.replica_of(static_cast<int>(rank));
    const auto stage = static_cast<std::size_t>(answer.layout.stage_of(static_cast<int>(rank)));
    cards.push_back({{"device", devices[rank].str()},
                     {"replica", replica},
                     {"stage", stage},
                     {"needed_bytes", count(answer.needed, stage)},
                     {"peak_reserved_bytes", count(answer.peak, stage)},
                     {"free_bytes", count(answer.free, stage)}});
    if (answer.needed && answer.free &&
        answer.free->of(stage) - answer.needed->of(stage) <
            answer.free->of(tightest) - answer.needed->of(tightest))
      tightest = stage;
  }
  return {{"schema", 1},
          {"plan", to_json(answer.plan)},
          {"effective_batch", answer.rows},
          {"needed_bytes", count(answer.needed, tightest)},
          {"free_bytes", count(answer.free, tightest)},
          {"cards", cards},
          {"fits", answer.fits},
          {"allowed_by", answer.allowed_by.empty() ? Json() : Json(answer.allowed_by)},
          {"step_s", step_s},
          {"rates", rates}};
}

double step_seconds(const config::Training& training, const model::ModelConfig& config,
                    const PlanAnswer& answer, const std::vector<const gpu::CatalogueCard*>& cards) {
  const config::Sharing& sharing = training.sharing;
  const std::int64_t rows = answer.rows_of_replica();
  model::Settings settings = training.settings;
  for (const plan::Rung& rung : plan::rungs())
    if (answer.plan.has(rung.name)) rung.put(settings, true);
  plan::RatedCards rated;
  for (const gpu::CatalogueCard* const card : cards) {
    rated.kind_of_card.push_back(static_cast<int>(rated.kinds.size()));
    rated.kinds.push_back(card);
  }
  std::vector<plan::PricedTraining> trainings;
  trainings.push_back({settings, plan::PriceBook(Json::object())});
  plan::ModelPricer pricer(config, std::move(trainings), rated, {});
  const plan::Form form{.rows = largest_part(answer.plan, rows), .replicas = sharing.replicas};
  std::vector<plan::PlacedStage> stages;
  std::int64_t first = 0;
  for (const models::Part& part : sharing.split.empty()
                                      ? train::even_parts(pricer.layers(), sharing.stages)
                                      : train::parts_of(sharing.split, pricer.layers())) {
    const auto stage = static_cast<int>(stages.size());
    plan::PlacedStage& placed = stages.emplace_back();
    placed.stage = {.form = form,
                    .first = first,
                    .count = part.count,
                    .checkpointed = sharing.checkpointed.contains(stage)};
    for (int replica = 0; replica < sharing.replicas; ++replica)
      placed.cards.push_back(replica * sharing.stages + stage);
    first += part.count;
  }
  const auto parts = static_cast<int>(count_of_parts(answer.plan, rows));
  const auto times = [&](const plan::Stage& stage, int kind) {
    plan::LayerTimes sum;
    const auto layers = pricer.times(form, kind);
    for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer) {
      const plan::LayerTimes& one = layers.at(static_cast<std::size_t>(layer));
      sum.forward += one.forward;
      sum.backward += one.backward + (stage.checkpointed ? one.again : 0);
      sum.optimizer += one.optimizer;
    }
    return sum;
  };
  return plan::step_seconds(stages, rated.kind_of_card,
                            plan::pipeline_named(training.config.text("pipeline")), parts, pricer,
                            times);
}

}  // namespace headroom::cli
