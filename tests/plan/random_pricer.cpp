#include "tests/plan/random_pricer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <utility>

#include "tests/plan/enumerate_plans.h"

namespace headroom::plan {
namespace {

constexpr double kMiB = 1 << 20;

// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
std::uint64_t mixed(std::uint64_t state) {
  state = (state ^ (state >> 30)) * 0xBF58'476D'1CE4'E5B9ULL;
  state = (state ^ (state >> 27)) * 0x94D0'49BB'1331'11EBULL;
  return state ^ (state >> 31);
}

double share_of(std::uint64_t number) {
  return static_cast<double>(number >> 11) / 9'007'199'254'740'992.0;  // 2^53
}

// From 0 to 1, the same each time for the same stage.
double noise(std::uint64_t seed, const Stage& stage) {
  std::uint64_t state = seed;
  for (const std::int64_t each :
       {std::int64_t{stage.form.techniques}, stage.form.rows, std::int64_t{stage.form.replicas},
        stage.first, stage.count, std::int64_t{stage.waiting}, std::int64_t{stage.parts},
        stage.rows, std::int64_t{stage.checkpointed}})
    state = mixed(state + 0x9E37'79B9'7F4A'7C15ULL + static_cast<std::uint64_t>(each));
  return share_of(state);
}

Bytes whole(double bytes) {
  return Bytes{static_cast<std::int64_t>(std::ceil(bytes))};
}

}  // namespace

double Dice::between(double least, double most) {
  state_ += 0x9E37'79B9'7F4A'7C15ULL;
  return least + (most - least) * share_of(mixed(state_));
}

int Dice::from(int least, int most) {
  return std::min(most, least + static_cast<int>(between(0, most - least + 1)));
}

// ---- The prices

StageMemory RandomPricer::memory_of(const Stage& stage) const {
  const bool second = stage.form.techniques > 0;
  const auto rows = static_cast<double>(stage.form.rows);
  double weights = 0, kept = 0, largest = 0;
  for (std::int64_t at = stage.first; at < stage.first + stage.count; ++at) {
    const RandomLayer& layer = model_.layers.at(static_cast<std::size_t>(at));
    weights += layer.weights;
    kept += layer.kept * (stage.checkpointed ? 0.12 : 1);
    largest = std::max(largest, layer.kept);
  }
  if (stage.first > 0 && stage.first + stage.count == layers()) weights += model_.tied;
  const double replicated = stage.form.replicas > 1 ? 1.05 : 1;  // buckets of gradients
  const double resident = weights * replicated * (second ? 0.8 : 1);
  const double workspace = largest * (stage.checkpointed ? 0.9 : 0.25);
  const double refilled = stage.parts > stage.waiting ? 0.05 * largest : 0;
  const double waiting = std::min(rows * stage.waiting, static_cast<double>(stage.rows));
  const double activations = (waiting * kept + rows * (workspace + refilled)) * (second ? 0.6 : 1) *
                             (1 + 0.03 * noise(model_.seed, stage));
  return {whole(resident), whole(resident + activations + 2 * kMiB)};
}

StageMemory RandomPricer::at_least(const Stage& stage) {
  const StageMemory all = memory_of(stage);
  if (asked_.contains(stage)) return all;
  const auto part = [&](Bytes bytes, std::uint64_t salt) {
    const double share = 0.93 + 0.07 * noise(model_.seed + salt, stage);
    return Bytes{static_cast<std::int64_t>(static_cast<double>(bytes.count) * share)};
  };
  return {part(all.resident, 1), part(all.reserved, 2)};
}

StageMemory RandomPricer::exact(const Stage& stage) {
  ++exact_calls_;
  asked_.insert(stage);
  return memory_of(stage);
}

std::vector<LayerTimes> RandomPricer::times(const Form& form, int kind) {
  const double slow = model_.kinds.at(static_cast<std::size_t>(kind));
  const double technique = form.techniques > 0 ? 1.2 : 1;
  std::vector<LayerTimes> all;
  for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
    const RandomLayer& each = model_.layers[layer];
    const auto seconds = [&](double a_row) {
      return slow * technique * (model_.floor_s + a_row * static_cast<double>(form.rows));
    };
    all.push_back({.forward = seconds(each.forward),
                   .backward = seconds(each.backward),
                   .again = seconds(each.forward),
                   .optimizer = slow * each.optimizer});
  }
  return all;
}

double RandomPricer::hand_over(const Form& form, std::int64_t layer, int from, int to) {
  const double between_kinds = kind_of(from) == kind_of(to) ? 1 : 2;
  return model_.layers.at(static_cast<std::size_t>(layer)).hand_over * between_kinds *
         static_cast<double>(form.rows);
}

double RandomPricer::sum_of_gradients(const Stage& stage, const std::vector<int>& cards) {
  if (cards.size() < 2) return 0;
  const auto count = static_cast<double>(cards.size());
  return model_.seconds_of_sum_a_byte * static_cast<double>(memory_of(stage).resident.count) *
         (count - 1) / count;
}

int RandomPricer::kind_of(int card) const {
  const auto at = static_cast<std::size_t>(card);
  return at < model_.kind_of_card.size() ? model_.kind_of_card[at] : 0;
}

// ---- Models and cards

RandomModel random_model(Dice& dice, int layers) {
  RandomModel model;
  model.seed = static_cast<std::uint64_t>(dice.from(0, 1'000'000'000));
  const double unevenness = dice.between(0, 0.8);
  const auto uneven = [&] { return 1 + unevenness * dice.between(-1, 1); };
  const double kept = dice.between(2, 200) * kMiB;
  for (int layer = 0; layer < layers; ++layer)
    model.layers.push_back({.weights = 400 * kMiB * uneven(),
                            .kept = kept * uneven(),
                            .forward = 0.010 * uneven(),
                            .backward = 0.020 * uneven(),
                            .optimizer = 0.002 * uneven()});
  // Embeddings and the head
  model.layers.front().weights += dice.between(0, 800) * kMiB;
  model.layers.back().weights += dice.between(0, 400) * kMiB;
  model.layers.back().kept += kept * dice.between(0, 2);
  model.layers.back().forward += dice.between(0, 0.020);
  if (dice.chance(0.5)) model.tied = model.layers.front().weights * dice.between(0.1, 0.6);
  if (dice.chance(0.5)) model.floor_s = dice.between(0, 0.005);
  if (dice.chance(1 / 3.0)) {
    model.seconds_of_sum_a_byte = dice.between(0, 0.1) / (1000 * kMiB);
    const double hand_over = dice.between(0, 0.010);
    for (RandomLayer& layer : model.layers) layer.hand_over = hand_over * uneven();
  }
  return model;
}

namespace {

// Some of a few sizes, some in use: the budget of what stays does not shrink in proportion. The
// sizes are shares of what the whole model needs, from far too little to plenty.
std::vector<PlanCard> random_cards(Dice& dice, int count, int kinds, StageMemory model) {
  const double total = static_cast<double>(model.reserved.count) / count;
  const double plenty = std::exp(dice.between(std::log(0.6), std::log(5)));
  const double smaller = dice.between(0.4, 1), in_use = dice.chance(0.4) ? 0.3 : 0;
  const double stays = dice.between(0.6, 1);
  const int few = dice.from(1, 2);
  std::vector<PlanCard> cards;
  for (int card = 0; card < count; ++card) {
    const double size = total * plenty * (few > 1 && dice.chance(0.5) ? smaller : 1);
    const double used = dice.chance(in_use) ? size * dice.between(0.1, 0.5) : 0;
    cards.push_back({.kind = dice.from(0, kinds - 1),
                     .resident = whole(size * stays - used * (dice.chance(0.5) ? 1 : 0)),
                     .reserved = whole(size - used)});
  }
  return cards;
}

RandomCase any_case(std::uint64_t seed) {
  Dice dice(seed);
  RandomCase one;
  one.seed = seed;
  const int layers = dice.from(2, 10), cards = dice.from(dice.chance(0.7) ? 3 : 1, 6);
  one.model = random_model(dice, layers);
  const int kinds = dice.from(1, 2);
  if (kinds > 1) one.model.kinds.push_back(dice.between(1.1, 3));
  SearchQuestion& question = one.question;
  question.rows = dice.from(1, 12);
  question.techniques = dice.from(1, 2);
  if (dice.chance(0.3)) question.checkpointing = {dice.chance(0.5)};
  if (dice.chance(0.2)) question.pipeline = Pipeline::gpipe;
  RandomPricer pricer = one.pricer();
  question.cards = random_cards(dice, cards, kinds, pricer.exact({.form = {}, .count = layers}));
  if (dice.chance(0.3))
    for (const PlanCard& card : question.cards) one.model.kind_of_card.push_back(card.kind);
  if (one.model.layers.front().hand_over == 0 || kinds == 1) one.model.kind_of_card.clear();
  return one;
}

}  // namespace

RandomCase random_case(std::uint64_t seed, std::int64_t most_plans) {
  for (std::uint64_t attempt = seed * 1'000'003;; ++attempt) {
    RandomCase one = any_case(attempt);
    one.seed = seed;
    const Replicas order =
        one.has_uneven_links() ? Replicas::in_each_order : Replicas::in_any_order;
    if (count_plans(one.question, static_cast<std::int64_t>(one.model.layers.size()), order) <=
        most_plans)
      return one;
  }
}

std::string to_string(const SearchQuestion& question) {
  std::ostringstream text;
  text << question.rows << " rows, " << question.techniques << " techniques, "
       << to_string(question.pipeline) << (question.balance ? ", balanced" : "");
  for (const bool choice : question.checkpointing) text << (choice ? ", checkpointing" : ", none");
  if (question.part) text << ", parts of " << *question.part;
  if (question.replicas) text << ", " << *question.replicas << " replicas";
  if (question.stages) text << ", " << *question.stages << " stages";
  for (const PlanCard& card : question.cards)
    text << "; kind " << card.kind << " " << card.resident.mib() << "/" << card.reserved.mib();
  return text.str();
}

std::string to_string(const Placement& plan) {
  std::ostringstream text;
  text << plan.seconds << " s, techniques " << plan.form.techniques << ", " << plan.form.replicas
       << " replicas, " << plan.parts << " parts of " << plan.form.rows;
  for (const PlacedStage& each : plan.stages) {
    text << "; layers " << each.stage.first << " + " << each.stage.count
         << (each.stage.checkpointed ? " checkpointed" : "") << " on";
    for (const int card : each.cards) text << " " << card;
    text << ": " << each.memory.resident.mib() << "/" << each.memory.reserved.mib();
  }
  return text.str();
}

}  // namespace headroom::plan
