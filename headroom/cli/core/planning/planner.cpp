#include "headroom/cli/core/planning/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "headroom/allocator/version.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/training_config.h"
#include "headroom/cli/core/version.h"
#include "headroom/edit/shell_words.h"
#include "headroom/gpu/profile.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/shapes.h"
#include "headroom/model/tasks.h"
#include "headroom/plan/policies.h"

namespace headroom::cli {
namespace {

// To be raised when a stage's price changes for the same question: kept prices are then others.
constexpr int kPrices = 2;
// As `headroom train` has it where none is given.
constexpr double kUsualBudget = 0.7;

using Keys = std::vector<std::string>;

// ---- Cards ----

std::vector<const gpu::CatalogueCard*> rates_of(const PlanQuestion& question) {
  std::vector<const gpu::CatalogueCard*> rates;
  for (const gpu::SimulatedCard& card : question.cards)
    rates.push_back(question.rates.empty() ? &gpu::rates_for(card.name, card.total)
                                           : &gpu::card_named(question.rates, "--rates"));
  return rates;
}

plan::RatedCards kinds_of(const std::vector<const gpu::CatalogueCard*>& rates) {
  plan::RatedCards cards;
  for (const gpu::CatalogueCard* const one : rates) {
    auto known = std::find(cards.kinds.begin(), cards.kinds.end(), one);
    if (known == cards.kinds.end()) known = cards.kinds.insert(known, one);
    cards.kind_of_card.push_back(static_cast<int>(known - cards.kinds.begin()));
  }
  return cards;
}

std::vector<plan::PlanCard> limits_of(const PlanQuestion& question,
                                      const std::vector<int>& kind_of_card) {
  std::vector<plan::PlanCard> cards;
  for (std::size_t i = 0; i < question.cards.size(); ++i) {
    const gpu::SimulatedCard& card = question.cards[i];
    cards.push_back({.kind = kind_of_card[i],
                     .resident = question.budget.share
                                     ? plan::resident_budget(card.total, *question.budget.share)
                                     : question.budget.bytes,
                     .reserved = plan::plannable(gpu::room_of(card))});
  }
  return cards;
}

// One of each chip.
std::vector<gpu::SimulatedCard> chips_of(const PlanQuestion& question) {
  std::vector<gpu::SimulatedCard> chips;
  for (const gpu::SimulatedCard& card : question.cards)
    if (std::none_of(chips.begin(), chips.end(),
                     [&](const auto& one) { return one.profile == card.profile; }))
      chips.push_back(card);
  return chips;
}

std::vector<const gpu::DeviceProfile*> profiles_of(const std::vector<gpu::SimulatedCard>& chips) {
  std::vector<const gpu::DeviceProfile*> profiles;
  for (const gpu::SimulatedCard& chip : chips) profiles.push_back(gpu::find_profile(chip.profile));
  return profiles;
}

// ---- Techniques ----

// That a plan may add without changing the result.
std::vector<Keys> techniques_of(const config::Training& plain) {
  const bool may_fuse =
      !plain.config.is_given("loss") && model::is_over_tokens(plain.settings.task.value());
  return may_fuse ? std::vector<Keys>{{}, {"loss=fused"}} : std::vector<Keys>{{}};
}

constexpr const char* kAllocatorVariables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

// Where nothing else fits, one after another, each beside those before it: less lies idle between
// tensors, and activations wait on the host. Settings that a person has made stay.
std::vector<std::string> last_techniques(const config::Training& plain) {
  Keys all;
  const bool is_set = std::any_of(std::begin(kAllocatorVariables), std::end(kAllocatorVariables),
                                  [](const char* one) { return environment(one).has_value(); });
  if (!is_set && !plain.config.is_given("alloc_conf"))
    all.emplace_back("alloc_conf=expandable_segments:True");
  if (!plain.config.is_given("offload")) all.emplace_back("offload=activations");
  return all;
}

plan::PriceBook book_of(const config::Training& training, const PlanQuestion& question) {
  Json chips = Json::array(), variables = Json::object();
  for (const gpu::SimulatedCard& card : chips_of(question)) chips.push_back(card.profile);
  for (const char* variable : kAllocatorVariables)
    variables[variable] = or_null(environment(variable));
  variables["CUBLAS_WORKSPACE_CONFIG"] = or_null(environment("CUBLAS_WORKSPACE_CONFIG"));
  model::Settings settings = training.settings;
  settings.batch = settings.accumulation = 1;  // a stage's price says its rows
  return plan::PriceBook({{"prices", kPrices},
                          {"headroom", kVersion},
                          {"torch", std::string(allocator::default_version().torch)},
                          {"model", training.model.config.file()},
                          {"outputs", or_null(training.config.optional_whole("num_classes"))},
                          {"settings", model::to_json(settings)},
                          {"chips", std::move(chips)},
                          {"pipeline", training.config.text("pipeline")},
                          {"allocator", training.config.text("alloc_conf")},
                          {"environment", std::move(variables)}});
}

// ---- One way ----

// Keeps what dry runs have shown, however the search ends.
class KeptPrices {
 public:
  explicit KeptPrices(plan::ModelPricer& pricer) : pricer_(pricer) {}
  ~KeptPrices() { pricer_.save(); }
  KeptPrices(const KeptPrices&) = delete;
  KeptPrices& operator=(const KeptPrices&) = delete;

 private:
  plan::ModelPricer& pricer_;
};

plan::SearchQuestion search_question(const PlanQuestion& question, const config::Training& plain,
                                     const std::vector<int>& kind_of_card) {
  const bool is_fixed = plain.config.is_given("gradient_checkpointing");
  return {.cards = limits_of(question, kind_of_card),
          .rows = question.rows,
          .checkpointing = is_fixed ? std::vector{false} : std::vector{false, true},
          .part = question.part,
          .replicas = question.replicas,
          .stages = question.stages,
          .pipeline = plan::pipeline_named(plain.config.text("pipeline")),
          .balance = question.balance};
}

Bytes on_host(const plan::Placement& placement, plan::ModelPricer& pricer) {
  Bytes all;
  for (const plan::PlacedStage& stage : placement.stages)
    all += pricer.on_host(stage.stage) * static_cast<std::int64_t>(stage.cards.size());
  return all;
}

// Leaves out the plans that keep too much on the host.
void know_host_memory(Planned& planned, const PlanQuestion& question, plan::ModelPricer& pricer) {
  planned.why_not_on_host.clear();
  const auto allowed = question.host_memory ? question.host_memory : host_memory_to_use();
  std::vector<plan::Considered>& all = planned.searched.considered;
  for (plan::Considered& one : all) {
    if (!one.best) continue;
    const Bytes needed = on_host(*one.best, pricer);
    if (!allowed || needed <= *allowed) continue;
    if (planned.why_not_on_host.empty())
      planned.why_not_on_host =
          fmt::format("activations need {} of the host's memory, and {} are allowed",
                      to_string(needed), to_string(*allowed));
    one.best.reset();
  }
  std::erase_if(all, [](const plan::Considered& one) { return !one.best && !one.refusal; });
  planned.on_host = planned.best() == nullptr ? Bytes{} : on_host(*planned.best(), pricer);
}

// With these techniques, each beside the way's keys.
void search_with(Planned& planned, const PlanQuestion& question,
                 const std::vector<Keys>& techniques, const MakeDryRuns& make, bool counts_cards) {
  planned.techniques = techniques;
  planned.trainings.clear();
  std::vector<plan::PricedTraining> priced;
  for (const Keys& keys : techniques) {
    planned.trainings.push_back(training_of(question, planned.way, keys));
    const config::Training& training = planned.trainings.back();
    priced.push_back({training.settings, book_of(training, question)});
  }
  const std::vector<gpu::SimulatedCard> chips = chips_of(question);
  std::vector<plan::PriceStage> dry_runs(techniques.size());
  const auto dry_run = [&](const plan::Stage& stage) {
    const auto number = static_cast<std::size_t>(stage.form.techniques);
    if (!dry_runs[number]) dry_runs[number] = make(planned.trainings[number], chips);
    return dry_runs[number](stage);
  };
  const config::Training& plain = planned.trainings.front();
  plan::RatedCards cards = kinds_of(planned.rates);
  cards.chips = profiles_of(chips);
  plan::ModelPricer pricer(plain.model.config, std::move(priced), cards, dry_run);
  const KeptPrices kept(pricer);
  plan::SearchQuestion asked = search_question(question, plain, cards.kind_of_card);
  asked.techniques = static_cast<int>(techniques.size());
  planned.searched = plan::search(asked, pricer);
  know_host_memory(planned, question, pricer);
  if (planned.best() == nullptr && counts_cards && planned.why_not_on_host.empty()) {
    const auto largest = std::max_element(
        asked.cards.begin(), asked.cards.end(),
        [](const auto& one, const auto& other) { return one.reserved < other.reserved; });
    planned.cards_needed = plan::cards_needed(asked, *largest, pricer);
  }
  planned.dry_runs += pricer.dry_runs();
}

void search_way(Planned& planned, const PlanQuestion& question, const MakeDryRuns& make,
                bool is_last) {
  const config::Training plain = training_of(question, planned.way);
  static_cast<void>(check_use_of_keys(plain));
  std::vector<Keys> techniques = techniques_of(plain);
  const Keys more = last_techniques(plain);
  for (std::size_t i = 0;; ++i) {
    search_with(planned, question, techniques, make, is_last && i == more.size());
    if (planned.best() != nullptr || i == more.size()) return;
    for (Keys& keys : techniques) keys.push_back(more[i]);
  }
}

// Of all numbers of replicas and stages, the one that lacks the least.
std::string why_refused(const Planned& planned) {
  if (!planned.why_not_on_host.empty()) return planned.why_not_on_host;
  const plan::Refusal* nearest = nullptr;
  for (const plan::Considered& one : planned.searched.considered)
    if (one.refusal && (nearest == nullptr || one.refusal->share() < nearest->share()))
      nearest = &*one.refusal;
  return nearest == nullptr ? "there is no way to cut it" : words_of(*nearest);
}

}  // namespace

MakeDryRuns none_can_be_made() {
  return [](const config::Training&, const std::vector<gpu::SimulatedCard>&) -> plan::PriceStage {
    return [](const plan::Stage&) -> plan::StagePrice { throw NotPriced(); };
  };
}

void check(const PlanQuestion& question) {
  if (question.cards.empty())
    throw UsageError(expectation("--gpus", "cards to plan for", "none", "--gpus sim:8x24GiB"));
  const std::vector<TuneWay> ways = ways_of(question);
  if (ways.empty())
    throw UsageError(expectation("plan", "a lighter way to train", "none", "--tune any"));
  const config::Training training = training_of(question, ways.front());
  static_cast<void>(check_use_of_keys(training));
  const std::int64_t layers = model::layer_count(training.model.config);
  if (question.stages.value_or(1) > layers)
    throw UsageError(expectation("--stages",
                                 "at most one for each of the " + counted(layers, "layer"),
                                 std::to_string(*question.stages)));
  if (question.replicas.value_or(1) > question.rows)
    throw UsageError(expectation(
        "--replicas", "at most one for each of the " + counted(question.rows, "row") + " of a step",
        std::to_string(*question.replicas)));
}

Planned plan_for(const PlanQuestion& asked, const MakeDryRuns& make) {
  PlanQuestion question = asked;
  check(question);
  Planned planned;
  if (question.without_rule) {
    Planned free = plan_for(*question.without_rule, make);
    planned.way_without_rule = free.way.words;
    if (free.best() != nullptr) planned.seconds_without_rule = free.best()->seconds;
    planned.dry_runs = free.dry_runs;
  }
  planned.rates = rates_of(question);
  const std::vector<TuneWay> ways = ways_of(question);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    planned.way = ways[i];
    question.part = asked.part;
    const auto search = [&] {
      const bool shrinks = question.part_may_shrink && *question.part > 1;
      search_way(planned, question, make, i + 1 == ways.size() && !shrinks);
      return planned.best() == nullptr && shrinks;
    };
    while (search()) --*question.part;
    if (planned.best() != nullptr) break;
    planned.refused.push_back({planned.way.words, why_refused(planned)});
  }
  return planned;
}

std::string words_of(const plan::Refusal& refusal) {
  return fmt::format(
      "GPU {} needs {}{}, and {} {}", refusal.card, to_string(refusal.needed),
      refusal.is_resident ? " for weights, gradients and optimizer states" : " for a step",
      to_string(refusal.allowed), refusal.is_resident ? "are allowed" : "can be planned");
}

// ---- The command ----

std::vector<std::string> keys_of(const PlanQuestion& question, const Planned& planned,
                                 const plan::Placement& placement) {
  Keys keys;
  for (const Keys& list :
       {planned.way.keys, Keys{"model.config=" + question.model}, question.keys,
        planned.techniques.at(static_cast<std::size_t>(placement.form.techniques))})
    keys.insert(keys.end(), list.begin(), list.end());
  const config::Training& training =
      planned.trainings.at(static_cast<std::size_t>(placement.form.techniques));
  if (const auto classes = training.config.optional_whole("num_classes"))
    keys.push_back("num_classes=" + std::to_string(*classes));
  keys.push_back("batch_size=" + std::to_string(question.rows));
  const bool is_split = placement.stages.size() > 1;
  if (placement.form.rows != question.rows || is_split)
    keys.push_back("micro_batch=" + std::to_string(placement.form.rows));
  if (placement.form.replicas > 1)
    keys.push_back("replicas=" + std::to_string(placement.form.replicas));
  Keys layers, checkpointed;
  for (const plan::PlacedStage& stage : placement.stages)
    layers.push_back(std::to_string(stage.stage.count));
  for (const int stage : placement.checkpointed()) checkpointed.push_back(std::to_string(stage));
  if (is_split) keys.push_back("split=" + join(layers, ","));
  if (checkpointed.size() == layers.size())
    keys.emplace_back("gradient_checkpointing=true");
  else if (!checkpointed.empty())
    keys.push_back("checkpointed_stages=" + join(checkpointed, ","));
  // Else the run would look for a plan for all of them.
  if (question.cards.size() > 1 && placement.form.replicas == 1 && !is_split)
    keys.emplace_back("plan=off");
  std::vector<int> cards;  // by rank
  for (int replica = 0; replica < placement.form.replicas; ++replica)
    for (const plan::PlacedStage& stage : placement.stages)
      cards.push_back(stage.cards.at(static_cast<std::size_t>(replica)));
  std::vector<int> all(question.cards.size());
  std::iota(all.begin(), all.end(), 0);
  // Of the first cards of a box of its own a run takes the first ones; elsewhere the freest.
  const bool is_first = std::equal(cards.begin(), cards.end(), all.begin());
  if (cards != all && !(is_first && question.gpus.starts_with("sim:") &&
                        question.gpus.find('@') == std::string::npos)) {
    Keys numbers;
    for (const int card : cards) numbers.push_back(std::to_string(card));
    keys.push_back("cards=" + join(numbers, ","));
  }
  if (question.budget.share.value_or(0) != kUsualBudget)
    keys.push_back("budget=" + (question.budget.share
                                    ? fmt::format("{:g}", *question.budget.share)
                                    : std::to_string(question.budget.bytes.count) + "B"));
  return keys;
}

std::string command_of(const PlanQuestion& question, const Planned& planned) {
  Keys words{"headroom", "train"};
  for (std::string& key : keys_of(question, planned, *planned.best()))
    words.push_back(std::move(key));
  for (const char* const word : {"dataset=synthetic", "weights=random", "--gpus"})
    words.emplace_back(word);
  words.push_back(question.gpus);
  for (std::string& word : words) word = edit::quoted(word);
  return join(words, " ");
}

}  // namespace headroom::cli
