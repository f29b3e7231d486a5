#include "headroom/cli/core/planning/rule_of_thumb.h"

#include <algorithm>
#include <memory>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/error.h"
#include "headroom/model/shapes.h"
#include "headroom/plan/decide.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {
namespace {

using model::Policy;

// The number of the table; memory decides whether it has to be less.
plan::BatchChoice of_table(const PlanQuestion& question, const model::Settings& settings) {
  return plan::batch_by_size(model::model_named(question.model).config, settings,
                             allocator::kUnlimited);
}

// What is given is fixed, so a rule cannot decide it.
void refuse_what_it_decides(const PlanQuestion& question, Policy policy) {
  const auto refuse = [&](bool is_given, const char* option) {
    if (is_given)
      throw UsageError(expectation("--policy " + std::string(to_string(policy)),
                                   std::string("no ") + option + ", which the rule decides",
                                   option));
  };
  const bool quantises =
      std::any_of(question.keys.begin(), question.keys.end(),
                  [](const std::string& word) { return word.starts_with("quantize="); });
  refuse(question.part && (policy == Policy::size_table || policy == Policy::simple),
         "--micro-batch");
  if (policy != Policy::strategy) return;
  refuse(question.replicas.has_value(), "--replicas");
  refuse(question.stages.has_value(), "--stages");
  refuse(quantises, "--quantize");
}

}  // namespace

PlanQuestion by_rule(PlanQuestion question, const model::Settings& settings) {
  if (settings.policy == Policy::exact) return question;
  refuse_what_it_decides(question, settings.policy);
  PlanQuestion ruled = question;
  if (settings.policy == Policy::size_table) {
    const plan::BatchChoice choice = of_table(question, settings);
    ruled.part = std::min(choice.batch, question.rows);
    ruled.part_may_shrink = true;
    ruled.decision = choice.why;
  } else {
    const plan::Decided decided = plan::decide(question.model, settings, question.cards);
    ruled.model = decided.model;
    ruled.decision = decided.why;
    if (settings.policy == Policy::simple)
      ruled.part = std::min(decided.settings.batch, question.rows);
    if (ruled.decision.ends_with("does not fit")) ruled.decision += "; 1 is tried";
    if (decided.replicas)
      ruled.replicas = static_cast<int>(std::min<std::int64_t>(*decided.replicas, question.rows));
    if (decided.stages)
      ruled.stages = static_cast<int>(std::min<std::int64_t>(
          *decided.stages, model::layer_count(model::model_named(ruled.model).config)));
    if (decided.settings.quantize != settings.quantize) {
      ruled.tune = Tune::lora;
      ruled.keys.push_back(
          "quantize=" +
          std::string(decided.settings.quantize == model::Quantize::int8 ? "8bit" : "4bit"));
    }
  }
  ruled.policy = std::string(to_string(settings.policy));
  question.model = ruled.model;
  ruled.without_rule = std::make_shared<PlanQuestion>(std::move(question));
  return ruled;
}

}  // namespace headroom::cli
