#include "headroom/plan/decide.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/gpu/profile.h"
#include "headroom/plan/policies.h"

namespace headroom::plan {
namespace {

using gpu::SimulatedCard;
using model::Policy;

Bytes total_of(const SimulatedCard& card) {
  return card.total;
}

// `size_of` is the total, or the memory that a process can allocate (room_of).
const SimulatedCard& smallest_of(const std::vector<SimulatedCard>& gpus, Policy policy,
                                 Bytes (*size_of)(const SimulatedCard&)) {
  const auto smallest = std::min_element(
      gpus.begin(), gpus.end(),
      [&](const auto& one, const auto& other) { return size_of(one) < size_of(other); });
  if (smallest == gpus.end())
    throw UsageError(expectation("--policy " + std::string(to_string(policy)), "a card", "none",
                                 "--gpus \"RTX 4090\""));
  return *smallest;
}

std::vector<Variant> variants_from(const std::string& text) {
  std::vector<Variant> variants;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t at = part.find('@');
    const bool has_bound = at != std::string_view::npos;
    variants.push_back({.min_total = has_bound ? parse_bytes(part.substr(at + 1)) : Bytes{},
                        .model = std::string(trim(part.substr(0, at)))});
  }
  return variants;
}

Decided by_variant(const std::string& text, const model::Settings& settings,
                   const SimulatedCard& smallest) {
  const auto choice = variant_by_memory(variants_from(text), smallest.total);
  if (choice.model.empty())
    throw UsageError(expectation("--policy variant",
                                 "a variant for a card of " + to_string(smallest.total), text,
                                 "a last one without @SIZE"));
  return {choice.model, settings, choice.why};
}

Decided with_batch(const std::string& model, model::Settings settings, const BatchChoice& choice) {
  // If even batch 1 does not fit, uses batch 1: the estimate then shows how much is missing.
  settings.batch = std::max<std::int64_t>(1, choice.batch);
  return {model, settings, choice.why};
}

Decided by_size_table(const std::string& name, const model::Settings& settings,
                      const SimulatedCard& smallest) {
  const auto model = model::model_named(name);
  return with_batch(name, settings,
                    batch_by_size(model.config, settings, plannable(room_of(smallest)),
                                  gpu::find_profile(smallest.profile)));
}

Decided by_simple_formula(const std::string& name, const model::Settings& settings,
                          const SimulatedCard& smallest) {
  const auto model = model::model_named(name);
  const long long each = settings.dtype == model::Dtype::float32 ? 4 : 2;
  const Bytes weights{forecast::count_parameters(model.config) * each};
  return with_batch(name, settings, batch_by_simple_formula(smallest.total, weights));
}

Decided by_strategy(const std::string& name, const model::Settings& settings, std::size_t gpus) {
  const auto model = model::model_named(name);
  const auto choice = strategy_by_size(forecast::count_parameters(model.config), settings,
                                       static_cast<int>(std::max<std::size_t>(1, gpus)));
  return {name, choice.settings, choice.why, choice.replicas, choice.stages};
}

}  // namespace

Decided decide(const std::string& model, const model::Settings& settings,
               const std::vector<SimulatedCard>& gpus) {
  switch (settings.policy) {
    case Policy::exact:
      return {model, settings, ""};
    case Policy::size_table:
      return by_size_table(model, settings, smallest_of(gpus, settings.policy, gpu::room_of));
    case Policy::strategy:
      return by_strategy(model, settings, gpus.size());
    case Policy::simple:
      return by_simple_formula(model, settings, smallest_of(gpus, settings.policy, total_of));
    case Policy::variant:
      return by_variant(model, settings, smallest_of(gpus, settings.policy, total_of));
  }
  throw InternalError("decide", "a policy without a rule");
}

}  // namespace headroom::plan
