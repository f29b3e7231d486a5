#include "headroom/cli/core/view/plan_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/model/tasks.h"
#include "headroom/plan/technique.h"

namespace headroom::cli {
namespace {

using plan::Considered;
using plan::PlacedStage;
using plan::Placement;

// ---- Words ----

// "2 replicas in 4 stages", "8 replicas", "8 stages", "one card"
std::string shape_words(int replicas, int stages) {
  if (replicas == 1 && stages == 1) return "one card";
  if (stages == 1) return counted(replicas, "replica");
  return (replicas == 1 ? "" : counted(replicas, "replica") + " in ") + counted(stages, "stage");
}

std::string checkpointing_words(const Placement& placement) {
  const std::vector<int> stages = placement.checkpointed();
  if (stages.empty()) return "";
  if (stages.size() == placement.stages.size()) return ", checkpointing";
  std::vector<std::string> words;
  for (const int stage : stages) words.push_back(std::to_string(stage));
  return fmt::format(", checkpointing in {} {}", words.size() == 1 ? "stage" : "stages",
                     listed(words));
}

std::string techniques_words(const Planned& planned, const Placement& placement) {
  std::string words;
  for (const std::string& key :
       planned.techniques.at(static_cast<std::size_t>(placement.form.techniques)))
    words += ", " + (key == "loss=fused"             ? std::string("fused loss")
                     : key == "offload=activations"  ? std::string("activations on the host")
                     : key.starts_with("alloc_conf") ? std::string("expandable segments")
                                                     : key);
  return words;
}

std::string placement_words(const Planned& planned, const Placement& placement) {
  return fmt::format(
      "{}, micro-batch {} in {}{}{}",
      shape_words(placement.form.replicas, static_cast<int>(placement.stages.size())),
      placement.form.rows, counted(placement.parts, "part"), checkpointing_words(placement),
      techniques_words(planned, placement));
}

// "8 cards of 31.36 GiB", "24.00 GiB and 80.00 GiB"
std::string cards_words(const PlanQuestion& question) {
  std::map<std::string, int> counts;
  std::vector<std::string> order;
  for (const gpu::SimulatedCard& card : question.cards) {
    const Bytes usable = gpu::usable(card);
    std::string name = to_string(card.total);
    if (usable < card.total) name += " with " + to_string(usable) + " usable";
    if (counts[name]++ == 0) order.push_back(name);
  }
  std::vector<std::string> words;
  for (const std::string& name : order)
    words.push_back(counted(counts[name], "card") + " of " + name);
  return listed(words);
}

std::string rates_words(const Planned& planned) {
  std::vector<std::string> names;
  for (const gpu::CatalogueCard* card : planned.rates)
    if (std::find(names.begin(), names.end(), card->brief) == names.end())
      names.push_back(card->brief);
  return listed(names);
}

// ---- JSON ----

Json stages_json(const Placement& placement) {
  Json split = Json::array();
  for (int replica = 0; replica < placement.form.replicas; ++replica)
    for (const PlacedStage& stage : placement.stages)
      split.push_back({{"gpu", stage.cards.at(static_cast<std::size_t>(replica))},
                       {"replica", replica},
                       {"first", stage.stage.first},
                       {"last", stage.stage.first + stage.stage.count - 1}});
  return split;
}

// Of each card of the question; 0 for one without a part.
Json by_card(const PlanQuestion& question, const Placement& placement,
             Bytes plan::StageMemory::*figure) {
  std::vector<std::int64_t> bytes(question.cards.size());
  for (const PlacedStage& stage : placement.stages)
    for (const int card : stage.cards)
      bytes.at(static_cast<std::size_t>(card)) = (stage.memory.*figure).count;
  return bytes;
}

// What a run under the plan may still change if memory runs out all the same (train/ladder.h).
std::vector<std::string> still_possible(const Planned& planned, const Placement& placement) {
  const config::Training& training =
      planned.trainings.at(static_cast<std::size_t>(placement.form.techniques));
  std::vector<std::string> words;
  if (placement.form.rows > 1) words.emplace_back("smaller parts");
  for (const plan::Rung& rung : plan::rungs()) {
    if (rung.lasts) continue;
    model::Settings with = training.settings;
    rung.put(with, true);
    const bool is_on =
        with == training.settings || (rung.name == "checkpointing" &&
                                      placement.checkpointed().size() == placement.stages.size());
    const bool is_of_texts = rung.name == "fused_loss";
    if (!is_on && (!is_of_texts || model::is_over_tokens(training.settings.task.value())))
      words.push_back(rung.words);
  }
  return words;
}

Json chosen_json(const PlanQuestion& question, const Planned& planned, const Placement& placement) {
  const auto number = static_cast<std::size_t>(placement.form.techniques);
  const config::Training& training = planned.trainings.at(number);
  const std::vector<int> checkpointed = placement.checkpointed();
  const bool all = checkpointed.size() == placement.stages.size();
  const Json settings = model::to_json(training.settings);
  return {{"micro_batch", placement.form.rows},
          {"accumulation", placement.parts},
          {"replicas", placement.form.replicas},
          {"split", stages_json(placement)},
          {"checkpointing", all                    ? Json("full")
                            : checkpointed.empty() ? settings.at("checkpointing")
                                                   : Json(checkpointed)},
          {"dtype", settings.at("dtype")},
          {"quantize", settings.at("quantize")},
          {"tune", training.settings.lora_rank > 0     ? "lora"
                   : training.settings.freeze_backbone ? "head"
                                                       : "full"},
          {"optimizer", settings.at("optimizer")},
          {"loss", settings.at("loss")},
          {"offload", settings.at("offload")},
          {"allocator", training.config.text("alloc_conf")},
          {"schedule", training.config.text("pipeline")},
          {"may_change", still_possible(planned, placement)},
          {"keys", keys_of(question, planned, placement)}};
}

Json considered_json(const PlanQuestion& question, const Planned& planned,
                     const Considered& considered) {
  const auto& best = considered.best;
  return {{"plan", best ? placement_words(planned, *best)
                        : shape_words(considered.replicas, considered.stages)},
          {"replicas", considered.replicas},
          {"stages", considered.stages},
          {"fits", best.has_value()},
          {"peak_reserved_bytes",
           best ? by_card(question, *best, &plan::StageMemory::reserved) : Json()},
          {"step_s", best ? Json(best->seconds) : Json()},
          {"why_not", considered.refusal ? Json(words_of(*considered.refusal)) : Json()}};
}

Json rule_json(const PlanQuestion& question, const Planned& planned) {
  if (!question.without_rule) return {};
  const auto& free = planned.seconds_without_rule;
  return {{"name", question.policy},
          {"decision", question.decision},
          {"step_s_without", or_null(free)},
          {"loses_s",
           free && planned.best() != nullptr ? Json(planned.best()->seconds - *free) : Json()}};
}

// "it loses 51 %: the fastest plan takes 1.53 s a step"
std::string loss_words(const Planned& planned) {
  const auto& free = planned.seconds_without_rule;
  const Placement* const best = planned.best();
  if (!free) return best == nullptr ? "No other plan fits, either.\n" : "";
  const std::string command = "`headroom plan` without --policy";
  if (best == nullptr)
    return fmt::format("{} finds a plan of {} a step.\n", command, step_time_text(*free));
  if (planned.way.words != planned.way_without_rule)
    return fmt::format("Without the rule: {}, {} a step.\n", planned.way_without_rule,
                       step_time_text(*free));
  const double lost = best->seconds / *free - 1;
  if (lost < 0.005) return "No plan is faster.\n";
  return fmt::format("The rule loses {:.0f} %: {} finds a plan of {} a step.\n", 100 * lost,
                     command, step_time_text(*free));
}

}  // namespace

std::string step_time_text(double seconds) {
  return seconds >= 0.95 ? fmt::format("{:.3g} s", seconds)
                         : fmt::format("{:.3g} ms", std::max(1000 * seconds, 0.01));
}

Json to_json(const PlanQuestion& question, const Planned& planned) {
  const Placement* const best = planned.best();
  Json considered = Json::array(), runners_up = Json::array(), ways = Json::array(),
       rates = Json::array();
  for (const Considered& one : planned.searched.considered) {
    considered.push_back(considered_json(question, planned, one));
    if (one.best && &*one.best != best)
      runners_up.push_back(chosen_json(question, planned, *one.best));
  }
  for (const RefusedWay& way : planned.refused)
    ways.push_back({{"way", way.words}, {"why_not", way.why}});
  for (const gpu::CatalogueCard* card : planned.rates) rates.push_back(card->brief);
  return {
      {"schema", 1},
      {"model", planned.trainings.front().model.name},
      {"effective_batch", question.rows},
      {"rates", std::move(rates)},
      {"way", planned.way.words},
      {"way_number", planned.way.number},
      {"policy", rule_json(question, planned)},
      {"chosen", best != nullptr ? chosen_json(question, planned, *best) : Json()},
      {"predicted",
       best != nullptr
           ? Json{{"peak_reserved_bytes", by_card(question, *best, &plan::StageMemory::reserved)},
                  {"peak_requested_bytes", by_card(question, *best, &plan::StageMemory::requested)},
                  {"resident_bytes", by_card(question, *best, &plan::StageMemory::resident)},
                  {"host_bytes", planned.on_host.count},
                  {"disk_bytes", 0},
                  {"step_s", best->seconds}}
           : Json()},
      {"considered", std::move(considered)},
      {"runners_up", std::move(runners_up)},
      {"refused_ways", std::move(ways)},
      {"cards_needed", or_null(planned.cards_needed)},
      {"command", best != nullptr ? Json(command_of(question, planned)) : Json()},
      {"dry_runs", planned.dry_runs},
      {"plans_looked_at", planned.searched.looked_at}};
}

std::string plan_text(const PlanQuestion& question, const Planned& planned,
                      const Terminal& terminal) {
  const config::Training& training = planned.trainings.front();
  const forecast::Forecast forecast =
      forecast::forecast_of(training.model.config, training.settings);
  std::string text = fmt::format("{}, {} parameters: {}, {} rows a step\n",
                                 terminal.paint(training.model.name, Colour::bold),
                                 rounded(forecast.parameters), planned.way.words, question.rows);
  if (!training.model.note.empty()) text += training.model.note + "\n";
  text +=
      fmt::format("on {}, with the times of {}\n\n", cards_words(question), rates_words(planned));
  if (question.without_rule)
    text += fmt::format("By the rule {}: {}\n", question.policy, question.decision);
  for (const RefusedWay& way : planned.refused)
    text += fmt::format("{}: {}; {}\n", terminal.paint("Does not fit", Colour::red), way.words,
                        way.why);
  const Placement* const best = planned.best();
  if (best == nullptr) {
    text += planned.cards_needed ? fmt::format("{} like the largest one would hold it.\n",
                                               counted(*planned.cards_needed, "card"))
                                 : "No number of such cards holds it.\n";
    if (question.without_rule) text += loss_words(planned);
    return text;
  }
  text += fmt::format("{}: {}\n", terminal.paint("Fits", Colour::green),
                      placement_words(planned, *best));
  text += fmt::format("about {} a step\n", step_time_text(best->seconds));
  text += (question.without_rule ? loss_words(planned) : "") + "\n";
  std::vector<std::vector<std::string>> rows;
  for (int replica = 0; replica < best->form.replicas; ++replica)
    for (const PlacedStage& stage : best->stages)
      rows.push_back(
          {std::to_string(stage.cards.at(static_cast<std::size_t>(replica))),
           std::to_string(replica),
           fmt::format("{} to {}", stage.stage.first, stage.stage.first + stage.stage.count - 1),
           to_string(stage.memory.resident), to_string(stage.memory.reserved)});
  text += table(">GPU|>replica|layers|>stays|>reserved", rows, terminal);
  const std::vector<std::string> more = still_possible(planned, *best);
  if (!more.empty())
    text += in_lines("If memory runs out all the same: " + listed(more) + ".", "\n", "", terminal);
  if (planned.on_host > Bytes{})
    text += fmt::format("about {} wait on the host\n", to_string(planned.on_host));
  std::string others;
  for (const Considered& one : planned.searched.considered) {
    if (one.best && &*one.best == best) continue;
    others +=
        one.best
            ? fmt::format("  {} a step: {}\n", step_time_text(one.best->seconds),
                          placement_words(planned, *one.best))
            : in_lines(fmt::format("does not fit: {}; {}", shape_words(one.replicas, one.stages),
                                   words_of(*one.refusal)),
                       "  ", "    ", terminal);
  }
  if (!others.empty()) text += "\nOther plans:\n" + others;
  const bool is_large = question.gpus.starts_with("sim:") &&
                        question.cards.size() > static_cast<std::size_t>(gpu::kMostSimulatedCards);
  text += is_large ? fmt::format("\nRun it on such cards (a process simulates {} at most):\n  ",
                                 gpu::kMostSimulatedCards)
                   : "\nRun it:\n  ";
  text += command_of(question, planned) + "\n";
  return text;
}

ExitCode print_plan(const PlanQuestion& question, const Planned& planned, bool as_json) {
  print(as_json ? to_line(to_json(question, planned)) + "\n"
                : plan_text(question, planned, standard_output()));
  return planned.best() != nullptr ? kOk : kDoesNotFit;
}

}  // namespace headroom::cli
