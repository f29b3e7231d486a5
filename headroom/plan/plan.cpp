#include "headroom/plan/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/plan/technique.h"

namespace headroom::plan {

std::int64_t count_of_parts(const Plan& plan, std::int64_t rows) {
  const std::int64_t most = plan.micro_batch == 0 ? rows : std::min(plan.micro_batch, rows);
  return (rows + most - 1) / most;
}

std::int64_t largest_part(const Plan& plan, std::int64_t rows) {
  const std::int64_t count = count_of_parts(plan, rows);
  return (rows + count - 1) / count;
}

std::int64_t smallest_part(const Plan& plan, std::int64_t rows) {
  return rows / count_of_parts(plan, rows);
}

std::vector<std::int64_t> micro_batches(std::int64_t rows, const PartLimits& limits) {
  const std::int64_t most = limits.most == 0 ? rows : std::min(limits.most, rows);
  std::vector<std::int64_t> all;
  for (Plan plan{.micro_batch = most}; plan.micro_batch > 0; --plan.micro_batch) {
    plan.micro_batch = largest_part(plan, rows);
    if (plan.micro_batch < std::min(limits.least, rows) ||
        smallest_part(plan, rows) < std::min(limits.fewest, rows))
      break;
    all.push_back(plan.micro_batch);
  }
  return all;
}

Plan with(Plan plan, const std::string& technique) {
  plan.techniques.insert(technique);
  return plan;
}
Plan without(Plan plan, const std::string& technique) {
  plan.techniques.erase(technique);
  return plan;
}

Plan keeping_what_lasts(Plan plan, const Plan& now) {
  for (const Rung& rung : rungs())
    if (rung.lasts && now.has(rung.name)) plan.techniques.insert(rung.name);
  return plan;
}

bool adds_what_lasts(const Plan& plan, const Plan& now) {
  return std::any_of(rungs().begin(), rungs().end(), [&](const Rung& rung) {
    return rung.lasts && plan.has(rung.name) && !now.has(rung.name);
  });
}

std::string to_string(const Plan& plan) {
  std::string words = plan.micro_batch == 0 ? "the whole batch at once"
                                            : "micro-batch " + std::to_string(plan.micro_batch);
  for (const Rung& rung : rungs())
    if (plan.has(rung.name)) words += ", " + rung.words;
  if (!plan.allocator.empty()) words += ", " + plan.allocator;
  if (!plan.device.empty()) words += ", on " + plan.device;
  return words;
}

Json to_json(const Plan& plan) {
  Json json{{"micro_batch", plan.micro_batch}};
  for (const Rung& rung : rungs()) json[rung.name] = plan.has(rung.name);
  json["allocator"] = plan.allocator;
  json["device"] = plan.device;
  return json;
}

Plan plan_from(const Json& document, std::string_view source) {
  const auto refuse = [&](const std::string& words) {
    throw InputError(std::string(source), words);
  };
  if (!document.is_object()) refuse("expected a plan, received " + document.dump());
  Plan plan;
  const Json known = to_json(plan);
  for (const auto& [key, value] : document.items()) {
    if (!known.contains(key)) refuse("no plan has a `" + key + "`");
    if (known[key].type_name() != std::string_view(value.type_name()))
      refuse("expected a " + std::string(known[key].type_name()) + " for `" + key + "`, received " +
             value.dump());
  }
  plan.micro_batch = document.value("micro_batch", plan.micro_batch);
  if (plan.micro_batch < 0) refuse("expected a `micro_batch` of 0 or more");
  for (const Rung& rung : rungs())
    if (document.value(rung.name, false)) plan.techniques.insert(rung.name);
  plan.allocator = document.value("allocator", plan.allocator);
  plan.device = document.value("device", plan.device);
  return plan;
}

}  // namespace headroom::plan
