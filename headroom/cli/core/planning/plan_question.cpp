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
          {"tune", to_string(question.tune)},
          {"part", number_or_null(question.part)},
          {"replicas", number_or_null(question.replicas)},
          {"stages", number_or_null(question.stages)},
          {"balance", question.balance},
          {"rates", question.rates}};
}

PlanQuestion plan_question_from(const Json& json) {
  PlanQuestion question{.model = json.at("model"),
                        .keys = json.at("keys"),
                        .rows = json.at("rows"),
                        .gpus = json.at("gpus"),
                        .budget = {.share = optional_of<double>(json.at("budget_share")),
                                   .bytes = Bytes{json.at("budget_bytes")}},
                        .tune = tune_named(json.at("tune")),
                        .part = optional_of<std::int64_t>(json.at("part")),
                        .replicas = optional_of<int>(json.at("replicas")),
                        .stages = optional_of<int>(json.at("stages")),
                        .balance = json.at("balance"),
                        .rates = json.at("rates")};
  for (const Json& card : json.at("cards")) question.cards.push_back(gpu::card_from_json(card));
  return question;
}

std::vector<TuneWay> ways_of(const PlanQuestion& question) {
  // What is trained is fixed with the model's keys.
  if (fixes(question, "model")) return {{"as asked", {}}};
  const std::string type = model::model_named(question.model).config.type();
  const bool quantises = fixes(question, "quantize") && !fixes(question, "quantize=none"),
             has_adapters = type != "resnet" && type != "convnext";
  std::vector<TuneWay> ways;
  if (question.tune != Tune::lora && !quantises) {
    ways.push_back({"all weights", {"model=full"}});
    if (question.tune == Tune::any && !fixes(question, "optimizer"))
      for (const auto& [bits, optimizer] :
           {std::pair("8", "adamw8bit"), std::pair("4", "adamw4bit")})
        ways.push_back({std::string("all weights, optimizer states in ") + bits + " bit",
                        {"model=full", std::string("optimizer=") + optimizer}});
  }
  if (question.tune != Tune::full && has_adapters) {
    ways.push_back({"LoRA adapters", {"model=lora"}});
    if (!fixes(question, "quantize"))
      for (const std::string bits : {"8", "4"})
        ways.push_back({"LoRA adapters over weights in " + bits + " bit",
                        {"model=lora", "quantize=" + bits + "bit"}});
  }
  if (!ways.empty()) return ways;
  if (quantises)
    throw UsageError(expectation("--quantize", "--tune lora or any, where weights are frozen",
                                 std::string("--tune ") + to_string(question.tune)));
  throw UsageError(expectation("--tune", "full for " + type + ", which has no layers for adapters",
                               to_string(question.tune)));
}

config::Training training_of(const PlanQuestion& question, const TuneWay& way,
                             const std::vector<std::string>& more) {
  std::vector<std::string> words{"model.config=" + question.model, "dataset=synthetic",
                                 "weights=random", "batch_size=" + std::to_string(question.rows)};
  for (const auto* const list : {&way.keys, &question.keys, &more})
    words.insert(words.end(), list->begin(), list->end());
  const config::Training training(config::resolve(config::training_keys(), {.overrides = words}));
  if (!training.on_images || training.config.is_given("num_classes")) return training;
  // Data with as many classes as the model has.
  words.push_back("num_classes=" + std::to_string(training.model.config.labels()));
  return config::Training(config::resolve(config::training_keys(), {.overrides = words}));
}

}  // namespace headroom::cli
