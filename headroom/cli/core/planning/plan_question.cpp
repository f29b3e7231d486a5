#include "headroom/cli/core/planning/plan_question.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/config/resolved.h"
#include "headroom/config/training_keys.h"
#include "headroom/gpu/simulated_json.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::cli {
namespace {

constexpr std::pair<Tune, const char*> kTunes[] = {
    {Tune::full, "full"}, {Tune::lora, "lora"}, {Tune::any, "any"}};

template <typename Number>
Json number_or_null(const std::optional<Number>& number) {
  return number ? Json(*number) : Json();
}
template <typename Number>
std::optional<Number> optional_of(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<Number>());
}

std::optional<Bytes> optional_bytes(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(Bytes{value.get<std::int64_t>()});
}

// Places among the ways of Tune::any.
constexpr int kLora = 3, kLightest = 5;

// "quantize", or "quantize=none".
bool fixes(const PlanQuestion& question, const std::string& key) {
  return std::any_of(question.keys.begin(), question.keys.end(), [&](const std::string& word) {
    return word == key || word.starts_with(key + "=");
  });
}

}  // namespace

Tune tune_named(const std::string& name) {
  std::vector<std::string> all;
  for (const auto& [tune, word] : kTunes) {
    if (name == word) return tune;
    all.emplace_back(word);
  }
  throw UsageError(expectation("--tune", join(all, ", "), name));
}

const char* to_string(Tune tune) {
  return kTunes[static_cast<std::size_t>(tune)].second;
}

Json to_json(const PlanQuestion& question) {
  Json cards = Json::array();
  for (const gpu::SimulatedCard& card : question.cards) cards.push_back(gpu::to_json(card));
  return {{"model", question.model},
          {"keys", question.keys},
          {"rows", question.rows},
          {"cards", std::move(cards)},
          {"gpus", question.gpus},
          {"budget_share", number_or_null(question.budget.share)},
          {"budget_bytes", question.budget.bytes.count},
          {"host_memory_bytes", or_null(question.host_memory)},
          {"tune", to_string(question.tune)},
          {"part", number_or_null(question.part)},
          {"replicas", number_or_null(question.replicas)},
          {"stages", number_or_null(question.stages)},
          {"balance", question.balance},
          {"lighter_than", number_or_null(question.lighter_than)},
          {"policy", question.policy},
          {"decision", question.decision},
          {"part_may_shrink", question.part_may_shrink},
          {"without_rule", question.without_rule ? to_json(*question.without_rule) : Json()},
          {"rates", question.rates}};
}

PlanQuestion plan_question_from(const Json& json) {
  PlanQuestion question{.model = json.at("model"),
                        .keys = json.at("keys"),
                        .rows = json.at("rows"),
                        .gpus = json.at("gpus"),
                        .budget = {.share = optional_of<double>(json.at("budget_share")),
                                   .bytes = Bytes{json.at("budget_bytes")}},
                        .host_memory = optional_bytes(json.at("host_memory_bytes")),
                        .tune = tune_named(json.at("tune")),
                        .part = optional_of<std::int64_t>(json.at("part")),
                        .replicas = optional_of<int>(json.at("replicas")),
                        .stages = optional_of<int>(json.at("stages")),
                        .balance = json.at("balance"),
                        .lighter_than = optional_of<int>(json.at("lighter_than")),
                        .policy = json.at("policy"),
                        .decision = json.at("decision"),
                        .part_may_shrink = json.at("part_may_shrink"),
                        .rates = json.at("rates")};
  if (const Json& free = json.at("without_rule"); !free.is_null())
    question.without_rule = std::make_shared<PlanQuestion>(plan_question_from(free));
  for (const Json& card : json.at("cards")) question.cards.push_back(gpu::card_from_json(card));
  return question;
}

std::vector<TuneWay> ways_of(const PlanQuestion& question) {
  // What is trained is fixed with the model's keys.
  const bool is_lora = fixes(question, "model=lora"), is_fixed = fixes(question, "model");
  if (is_fixed && !question.lighter_than) return {{"as asked", {}, is_lora ? kLora : kLightest}};
  if (is_fixed && !is_lora) return {};
  const std::string type = model::model_named(question.model).config.type();
  const bool quantises = fixes(question, "quantize") && !fixes(question, "quantize=none"),
             has_adapters = type != "resnet" && type != "convnext";
  std::vector<TuneWay> ways;
  int number = 0;
  const auto add = [&](bool may, std::string words, std::vector<std::string> keys) {
    if (may && number > question.lighter_than.value_or(-1))
      ways.push_back({std::move(words), std::move(keys), number});
    ++number;
  };
  const bool all = question.tune != Tune::lora && !quantises && !is_fixed,
             lighter = all && question.tune == Tune::any && !fixes(question, "optimizer"),
             adapters = question.tune != Tune::full && has_adapters;
  add(all, "all weights", {"model=full"});
  for (const std::string bits : {"8", "4"})
    add(lighter, "all weights, optimizer states in " + bits + " bit",
        {"model=full", "optimizer=adamw" + bits + "bit"});
  add(adapters, "LoRA adapters", {"model=lora"});
  for (const std::string bits : {"8", "4"})
    add(adapters && !fixes(question, "quantize"), "LoRA adapters over weights in " + bits + " bit",
        {"model=lora", "quantize=" + bits + "bit"});
  if (!ways.empty() || question.lighter_than) return ways;
  if (quantises)
    throw UsageError(expectation("--quantize", "--tune lora or any, where weights are frozen",
                                 std::string("--tune ") + to_string(question.tune)));
  throw UsageError(expectation("--tune", "full for " + type + ", which has no layers for adapters",
                               to_string(question.tune)));
}

config::Training training_of(const PlanQuestion& question, const TuneWay& way,
                             const std::vector<std::string>& more) {
  std::vector<std::string> words{"dataset=synthetic", "weights=random",
                                 "batch_size=" + std::to_string(question.rows)};
  if (!fixes(question, "model=gpt-tiny")) words.push_back("model.config=" + question.model);
  for (const auto* const list : {&way.keys, &question.keys, &more})
    words.insert(words.end(), list->begin(), list->end());
  const config::Training training(config::resolve(config::training_keys(), {.overrides = words}));
  if (!training.on_images || training.config.is_given("num_classes")) return training;
  // Data with as many classes as the model has.
  words.push_back("num_classes=" + std::to_string(training.model.config.labels()));
  return config::Training(config::resolve(config::training_keys(), {.overrides = words}));
}

}  // namespace headroom::cli
