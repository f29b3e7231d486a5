#include "headroom/cli/core/planning/plan_of_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/planning/plan_document.h"
#include "headroom/config/training.h"
#include "headroom/config/training_keys.h"
#include "headroom/machine/cards_to_fill.h"

namespace headroom::cli {
namespace {

using config::Resolved;

constexpr const char* kByPlan = "chosen by plan";

// What a plan decides, and what it was made for.
const std::set<std::string> kDecided{"batch_size", "micro_batch",         "replicas",
                                     "split",      "checkpointed_stages", "cards",
                                     "loss",       "alloc_conf",          "gradient_checkpointing",
                                     "offload"};
// Keys that say how cards share a training.
constexpr const char* kShares[] = {"replicas", "stages", "split", "cards", "micro_batch"};

bool names_several(const gpu::Devices& devices) {
  using Kind = gpu::Devices::Kind;
  if (devices.kind == Kind::listed) return devices.listed.size() > 1;
  return devices.kind == Kind::all ||
         (devices.kind == Kind::simulated && devices.box.cards.size() > 1);
}

// The keys of what is trained and how; where, on what data and for how long does not matter.
std::vector<std::string> keys_of_step(const Resolved& config) {
  static const std::set<std::string> kOfStep{"seq", "image", "num_classes", "pipeline"},
      kNot{"model",  "model.config", "weights",       "model_variants", "batch_size",
           "budget", "max_retries",  "plan_schedule", "max_grad_norm"};
  std::vector<std::string> words{"model=" + config.text("model")};
  for (const config::Entry& entry : config.entries()) {
    const std::string group = config::training_keys().key(entry.key).group;
    const bool counts = group == "Model" || group == "Optimizer" || group == "Memory" ||
                        kOfStep.contains(entry.key);
    if (counts && !kNot.contains(entry.key) && entry.value && config.is_given(entry.key))
      words.push_back(entry.key + "=" + *entry.value);
  }
  // Known without reading the images.
  const std::string data = config.text("dataset");
  if (!config.is_given("num_classes") && (data == "flowers102" || data == "cub200"))
    words.emplace_back(data == "cub200" ? "num_classes=200" : "num_classes=102");
  return words;
}

std::int64_t rows_of_step(const Resolved& config) {
  return config.whole("batch_size") * config.whole("gradient_accumulation_steps");
}

PlanQuestion question_of(const Resolved& config, const gpu::Devices& devices) {
  const config::Training training(config);
  PlanQuestion question{
      .model = config.text("model") == "gpt-tiny" ? "gpt-tiny" : config.text("model.config"),
      .keys = keys_of_step(config),
      .rows = rows_of_step(config),
      .cards = machine::cards_to_fill(devices.text.empty() ? "auto" : devices.text),
      .gpus = devices.text,
      .budget = config.share_or_bytes("budget")};
  if (config.is_given("split"))
    throw UsageError(
        expectation("plan=auto", "stages=N, for which it finds the layers", "split", "plan=off"));
  if (config.is_given("replicas")) question.replicas = training.sharing.replicas;
  if (config.is_given("stages")) question.stages = training.sharing.stages;
  question.part = config.optional_whole("micro_batch");
  return question;
}

// "4 replicas in 2 stages, micro-batch 2"
std::string words_of(const Json& chosen) {
  const auto replicas = chosen.at("replicas").get<int>();
  const auto stages = static_cast<int>(chosen.at("split").size()) / replicas;
  std::string words = replicas * stages == 1 ? "one card" : "";
  if (replicas > 1) words = counted(replicas, "replica");
  if (stages > 1) words += (words.empty() ? "" : " in ") + counted(stages, "stage");
  return words + fmt::format(", micro-batch {}", chosen.at("micro_batch").get<std::int64_t>());
}

// Keys of the plan that the command gives otherwise are a contradiction.
void set_keys(Resolved& config, const Json& chosen, bool is_of_file) {
  const bool gives_rows =
      config.is_given("batch_size") || config.is_given("gradient_accumulation_steps");
  const std::int64_t rows = rows_of_step(config);
  const bool is_on_one = chosen.at("split").size() == 1;
  for (const std::string word : chosen.at("keys")) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "plan" || (key == "cards" && is_on_one)) continue;  // one card: the freest one
    if (!kDecided.contains(key) && !is_of_file) continue;
    Resolved other = config;
    other.set(key, value, kByPlan);
    const auto as_text = [&](const Resolved& one) { return one.to_json().at(key); };
    if (is_of_file && key != "batch_size" && config.is_given(key) &&
        as_text(config) != as_text(other))
      throw UsageError(expectation("plan=FILE", "a plan with " + key + "=" + as_text(config).dump(),
                                   "one with " + word));
    config = std::move(other);
  }
  config.set("gradient_accumulation_steps", "1", kByPlan);  // batch_size has all rows
  if (is_of_file && gives_rows && rows_of_step(config) != rows)
    throw UsageError(expectation("plan=FILE", fmt::format("a plan for {} rows a step", rows),
                                 fmt::format("one for {}", rows_of_step(config))));
}

// What `headroom plan --json` printed, or its `chosen` alone.
Json chosen_in(const std::string& file) {
  const Json document = parse_json(read_input(file), file);
  const bool is_whole = document.is_object() && document.contains("chosen");
  const Json chosen = is_whole ? document.at("chosen") : document;
  if (!chosen.is_object() || !chosen.contains("keys") || !chosen.contains("split"))
    throw InputError(file,
                     is_whole && chosen.is_null()
                         ? "expected a plan that fits, received one in which nothing does"
                         : "expected what `headroom plan --json` prints, received other JSON");
  return chosen;
}

}  // namespace

void take_plan(Resolved& config, const gpu::Devices& devices,
               const std::function<void(std::string_view)>& say) {
  const std::string plan = config.optional_text("plan").value_or("");
  if (plan == "off" || devices.kind == gpu::Devices::Kind::cpu) return;
  if (plan != "auto" && !plan.empty()) {
    const Json chosen = chosen_in(plan);
    set_keys(config, chosen, /*is_of_file=*/true);
    return say(fmt::format("the plan of {}: {}", plan, words_of(chosen)));
  }
  const bool is_shared_by_hand =
      std::any_of(std::begin(kShares), std::end(kShares),
                  [&](const char* key) { return config.is_given(key); }) ||
      config.text("device") != "auto" || !config.yes("auto_batch_size");
  if (plan.empty() && (!names_several(devices) || is_shared_by_hand)) return;
  Json document;
  try {
    const PlanQuestion question = question_of(config, devices);
    if (plan.empty() && question.cards.size() < 2) return;
    say(fmt::format("planning for {}", counted(static_cast<int>(question.cards.size()), "card")));
    document = plan_document(question);
  } catch (const Error& error) {
    if (!plan.empty()) throw;
    return say("going on without a plan: " + error.sentence());  // nobody asked for one
  }
  if (document.at("chosen").is_null()) {
    const Json& needed = document.at("cards_needed");
    std::string why =
        "no plan fits: " + document.at("refused_ways").at(0).at("why_not").get<std::string>();
    if (!needed.is_null())
      why += fmt::format("; {} like the largest one would hold it",
                         counted(needed.get<int>(), "card"));
    if (plan.empty()) return say(why + "; going on with one card");
    throw OutOfMemoryError(Complaint{{}, why}, Bytes{0});
  }
  set_keys(config, document.at("chosen"), /*is_of_file=*/false);
  say(words_of(document.at("chosen")));
}

}  // namespace headroom::cli
