#include "headroom/cli/engine/train/known_plan.h"

#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/plan/technique.h"

namespace headroom::cli {

namespace {

std::string keys_of_plans(const config::Resolved& config, bool on_several) {
  std::set<std::string> decisive{"min_batch_size", "auto_batch_size", "margin", "alloc_conf",
                                 "micro_batch"};
  if (on_several)
    decisive.insert({"replicas", "stages", "split", "pipeline", "checkpointed_stages"});
  for (const plan::Technique& technique : plan::techniques())
    if (!technique.rungs.empty())
      for (const plan::Key& key : technique.keys) decisive.insert(key.name);
  std::string keys;
  for (const config::Entry& entry : config.entries())
    if (decisive.contains(entry.key)) keys += ", " + entry.key + "=" + entry.value.value_or("");
  return keys;
}

}  // namespace

plan::Setup setup_of(const config::Training& training, const std::vector<c10::Device>& devices,
                     std::optional<Bytes> usable) {
  const auto now = memory::get_gpu_memory_stats(devices.front());
  std::vector<std::string> cards;
  for (const c10::Device device : devices)
    cards.push_back(device.is_cpu()
                        ? "cpu"
                        : to_string(memory::get_gpu_memory_stats(device).total.value_or(Bytes{})));
  return {.job = "train " + to_line(model::to_json(training.settings)) + " " + training.job() +
                 keys_of_plans(training.config, training.sharing.cards() > 1),
          .card = join(cards, ", "),
          .free = usable.value_or(now.reserved)};
}

// What changes the result for good is chosen anew by each run.
void remember(const plan::Setup& setup, const train::Plan& plan, Bytes peak, TrainingView& view) {
  if (adds_what_lasts(plan, {})) return;
  try {
    std::map<std::string, long long> values{{"batch", plan.micro_batch}};
    for (const plan::Rung& rung : plan::rungs()) values[rung.name] = plan.has(rung.name) ? 1 : 0;
    plan::Store().remember(setup, values, peak);
  } catch (const WriteError& error) {
    view.say("the plan is not remembered: " + error.sentence());
  }
}

// Where prices are known, only if a larger batch has failed with as much memory as there is now.
std::optional<train::Plan> remembered(const plan::Setup& setup, train::Step& step,
                                      std::int64_t rows) {
  const auto known = plan::Store().find(setup);
  if (!known || (step.prices() != nullptr && known->tried_up_to < setup.free)) return {};
  const auto value = [&](const char* key) {
    const auto found = known->values.find(key);
    return found == known->values.end() ? 0 : found->second;
  };
  const std::int64_t rows_of_replica = step.layout().rows_of_largest(rows);
  train::Plan plan = step.plan();
  plan.micro_batch = value("batch");
  for (const plan::Rung& rung : plan::rungs())
    if (!rung.lasts && value(rung.name.c_str()) != 0) plan.techniques.insert(rung.name);
  if (step.prices() != nullptr &&
      !step.prices()->is_served(plan, {.rows = rows_of_replica}, setup.free).value_or(true))
    return {};
  return plan;
}

}  // namespace headroom::cli
