// Made-up models, cards and questions for the tests of search(), each from a seed: layers that
// differ in time and memory, cards that differ, some of them in use, budgets from plenty to far too
// little.
//
//   const RandomCase one = random_case(7);
//   RandomPricer pricer = one.pricer();
//   const Searched found = search(one.question, pricer);
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "headroom/plan/pricer.h"
#include "headroom/plan/search.h"

namespace headroom::plan {

// Numbers that follow from a seed, the same on all machines.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] double between(double least, double most);
  [[nodiscard]] int from(int least, int most);  // both included
  [[nodiscard]] bool chance(double share) { return between(0, 1) < share; }

 private:
  std::uint64_t state_;
};

struct RandomLayer {
  double weights = 0;                               // bytes of parameters, gradients and states
  double kept = 0;                                  // bytes of activations of a row
  double forward = 0, backward = 0, optimizer = 0;  // seconds of a row on a card of kind 0
  double hand_over = 0;                             // seconds for what the layer before gives
};

struct RandomModel {
  std::uint64_t seed = 0;
  std::vector<RandomLayer> layers;
  // What a stage pays for a copy of the first layer's weight, if it has the last layer and not the
  // first.
  double tied = 0;
  double floor_s = 0;                // of a pass through a layer, for whatever rows
  std::vector<double> kinds = {1};   // times as slow as kind 0
  std::vector<int> kind_of_card;     // where a hand-over between kinds takes longer
  double seconds_of_sum_a_byte = 0;  // of gradients
};

// Memory grows with layers, rows and parts that wait, and is less with checkpointing. A little is
// lost to fragmentation, irregularly. at_least() is 93 to 100 % of exact() until that was asked.
class RandomPricer : public Pricer {
 public:
  explicit RandomPricer(RandomModel model) : model_(std::move(model)) {}

  [[nodiscard]] std::int64_t layers() const override {
    return static_cast<std::int64_t>(model_.layers.size());
  }
  [[nodiscard]] StageMemory at_least(const Stage& stage) override;
  [[nodiscard]] StageMemory exact(const Stage& stage) override;
  [[nodiscard]] std::vector<LayerTimes> times(const Form& form, int kind) override;
  [[nodiscard]] double hand_over(const Form& form, std::int64_t layer, int from, int to) override;
  [[nodiscard]] double sum_of_gradients(const Stage& stage, const std::vector<int>& cards) override;

  // Calls of exact().
  [[nodiscard]] std::int64_t exact_calls() const { return exact_calls_; }

 private:
  [[nodiscard]] StageMemory memory_of(const Stage& stage) const;
  [[nodiscard]] int kind_of(int card) const;

  RandomModel model_;
  std::set<Stage> asked_;
  std::int64_t exact_calls_ = 0;
};

struct RandomCase {
  std::uint64_t seed = 0;
  SearchQuestion question;
  RandomModel model;

  [[nodiscard]] RandomPricer pricer() const { return RandomPricer(model); }
  // Whether cards take time to give each other tensors and gradients.
  [[nodiscard]] bool has_links() const { return model.seconds_of_sum_a_byte > 0; }
  // Whether a hand-over takes longer between cards of two kinds.
  [[nodiscard]] bool has_uneven_links() const { return !model.kind_of_card.empty(); }
};

[[nodiscard]] RandomModel random_model(Dice& dice, int layers);
// A space of at most this many plans.
[[nodiscard]] RandomCase random_case(std::uint64_t seed, std::int64_t most_plans = 40'000);

// For the messages of tests: all that the search is asked, and a plan in one line.
[[nodiscard]] std::string to_string(const SearchQuestion& question);
[[nodiscard]] std::string to_string(const Placement& plan);

}  // namespace headroom::plan
