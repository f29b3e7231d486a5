// search() against a list of all plans (enumerate_plans.h), for random models and cards
// (random_pricer.h). HEADROOM_PLAN_PEERS sets the number of random cases; 100 without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headroom/plan/plan.h"
#include "headroom/plan/search.h"
#include "tests/plan/enumerate_plans.h"
#include "tests/plan/random_pricer.h"

namespace headroom::plan {
namespace {

std::uint64_t number_of_cases() {
  const char* const text = std::getenv("HEADROOM_PLAN_PEERS");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? 100 : std::stoull(text);
}

Replicas order_in(const RandomCase& one) {
  return one.has_uneven_links() ? Replicas::in_each_order : Replicas::in_any_order;
}

Enumerated all_plans(const RandomCase& one) {
  RandomPricer pricer = one.pricer();
  return enumerate_plans(one.question, pricer, order_in(one));
}

Searched searched(const RandomCase& one) {
  RandomPricer pricer = one.pricer();
  return search(one.question, pricer);
}

std::string about(const RandomCase& one) {
  return "case " + std::to_string(one.seed) + ": " + std::to_string(one.model.layers.size()) +
         " layers, " + (one.model.tied > 0 ? "tied, " : "") + (one.has_links() ? "links, " : "") +
         (one.has_uneven_links() ? "uneven links, " : "") + to_string(one.question);
}

// ---- What holds for each plan that a search gives

void expect_parts_of(const SearchQuestion& question, const Placement& plan) {
  const std::int64_t rows = (question.rows + plan.form.replicas - 1) / plan.form.replicas;
  const Plan cut{.micro_batch = plan.form.rows};
  EXPECT_EQ(largest_part(cut, rows), plan.form.rows);
  EXPECT_EQ(count_of_parts(cut, rows), plan.parts);
  if (question.part) {
    EXPECT_LE(plan.form.rows, *question.part);
  }
}

// All layers, one stage after the other, each with the parts that its place in the pipeline means.
void expect_all_layers(const SearchQuestion& question, const Placement& plan, std::int64_t layers) {
  std::int64_t next = 0;
  const int stages = static_cast<int>(plan.stages.size());
  for (int at = 0; at < stages; ++at) {
    const Stage& stage = plan.stages[static_cast<std::size_t>(at)].stage;
    EXPECT_EQ(stage.form, plan.form);
    EXPECT_EQ(stage.first, next);
    EXPECT_GE(stage.count, 1);
    EXPECT_EQ(stage.waiting, most_in_flight(question.pipeline, at, stages, plan.parts));
    EXPECT_EQ(stage.parts, std::min(plan.parts, std::max(stage.waiting + 2, kMostParts)));
    EXPECT_EQ(std::count(question.checkpointing.begin(), question.checkpointing.end(),
                         stage.checkpointed),
              1);
    next += stage.count;
  }
  EXPECT_EQ(next, layers);
}

void expect_own_cards(const Placement& plan) {
  std::set<int> taken;
  for (const PlacedStage& each : plan.stages) {
    EXPECT_EQ(static_cast<int>(each.cards.size()), plan.form.replicas);
    for (const int card : each.cards) EXPECT_TRUE(taken.insert(card).second) << card;
  }
}

void expect_sound(const RandomCase& one, const Placement& plan) {
  SCOPED_TRACE(to_string(plan));
  RandomPricer pricer = one.pricer();
  expect_parts_of(one.question, plan);
  expect_all_layers(one.question, plan, pricer.layers());
  expect_own_cards(plan);
  for (const PlacedStage& each : plan.stages) {
    const StageMemory exact = pricer.exact(each.stage);
    EXPECT_EQ(each.memory.resident, exact.resident);
    EXPECT_EQ(each.memory.reserved, exact.reserved);
  }
  EXPECT_TRUE(fits(one.question, plan));
  const double seconds = seconds_of(one.question, plan, pricer);
  EXPECT_NEAR(plan.seconds, seconds, 1e-9 * seconds);
}

// The figures are those of a card that is too small, in a plan whose fullest card is the least full
// of all by lower bounds that are at most 7 % too low (random_pricer.h).
void expect_refusal(const SearchQuestion& question, const Considered& refused,
                    const EnumeratedShape& listed) {
  ASSERT_TRUE(refused.refusal.has_value());
  EXPECT_FALSE(listed.fastest.has_value());
  const Refusal& why = *refused.refusal;
  EXPECT_GT(why.needed, why.allowed);
  if (question.balance) return;
  const PlanCard& card = question.cards.at(static_cast<std::size_t>(why.card));
  EXPECT_EQ(why.allowed, why.is_resident ? card.resident : card.reserved);
  EXPECT_LE(ratio(why.needed, why.allowed), listed.fullest.value());
  EXPECT_GE(ratio(why.needed, why.allowed), 0.9299 * listed.fullest.value());
}

// The fastest come first, then those that do not fit; no shape twice.
void expect_in_order(const Searched& found) {
  std::set<std::pair<int, int>> shapes;
  double last = 0;
  for (const Considered& each : found.considered) {
    EXPECT_TRUE(shapes.emplace(each.replicas, each.stages).second);
    EXPECT_NE(each.best.has_value(), each.refusal.has_value());
    const double seconds = each.best ? each.best->seconds : 1e300;
    EXPECT_GE(seconds, last);
    last = seconds;
  }
}

void expect_agreement(const RandomCase& one, const Searched& found, const Enumerated& all) {
  expect_in_order(found);
  for (const Considered& each : found.considered) {
    SCOPED_TRACE(std::to_string(each.replicas) + " replicas, " + std::to_string(each.stages) +
                 " stages");
    if (each.best) {
      EXPECT_EQ(each.best->form.replicas, each.replicas);
      EXPECT_EQ(static_cast<int>(each.best->stages.size()), each.stages);
      expect_sound(one, *each.best);
    } else {
      expect_refusal(one.question, each, all.shapes.at({each.replicas, each.stages}));
    }
  }
  ASSERT_EQ(found.best() != nullptr, all.best.has_value())
      << (all.best ? to_string(*all.best) : "");
}

// How many times as long as the fastest of all plans the search's one takes; 1 if none fits.
double ratio_of(const Searched& found, const Enumerated& all) {
  return found.best() && all.best ? found.best()->seconds / all.best->seconds : 1;
}

void expect_within(double most, const Searched& found, const Enumerated& all) {
  EXPECT_LE(ratio_of(found, all), most)
      << "found " << to_string(*found.best()) << "\nbest " << to_string(*all.best);
  EXPECT_GE(ratio_of(found, all), 1 - 1e-9)
      << "found " << to_string(*found.best()) << "\nbest " << to_string(*all.best);
}

// ---- Random cases

struct Tally {
  std::uint64_t cases = 0, infeasible = 0, large = 0;
  double worst = 1;
  std::uint64_t worst_case = 0;

  void add(const RandomCase& one, const Enumerated& all, double ratio) {
    ++cases;
    infeasible += all.best ? 0 : 1;
    large += all.plans >= 500 ? 1 : 0;
    if (ratio <= worst) return;
    worst = ratio;
    worst_case = one.seed;
  }

  void print() const {
    std::printf(
        "[ search   ] %llu cases, %llu infeasible, %llu of 500 plans and more, "
        "worst ratio %.4f in case %llu\n",
        static_cast<unsigned long long>(cases), static_cast<unsigned long long>(infeasible),
        static_cast<unsigned long long>(large), worst, static_cast<unsigned long long>(worst_case));
  }
};

TEST(SearchPeers, FindsWhatTheListOfAllPlansHas) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= number_of_cases(); ++seed) {
    const RandomCase one = random_case(seed);
    SCOPED_TRACE(about(one));
    const Enumerated all = all_plans(one);
    const Searched found = searched(one);
    expect_agreement(one, found, all);
    expect_within(1.02, found, all);
    tally.add(one, all, ratio_of(found, all));
  }
  tally.print();
  if (tally.cases < 100) return;
  EXPECT_GE(tally.infeasible * 10, tally.cases * 3);
  EXPECT_LE(tally.infeasible * 10, tally.cases * 7);
  EXPECT_GE(tally.large * 10, tally.cases * 3);
}

// Cases that a search got wrong once: the slowest stage comes first or last, links of different
// speed, one part, and a faster plan that was found and not given.
TEST(SearchPeers, FindsWhatItOnceMissed) {
  for (const std::uint64_t seed : {43, 146, 1970, 2141, 3729, 4410, 8987, 9560}) {
    const RandomCase one = random_case(seed);
    SCOPED_TRACE(about(one));
    const Enumerated all = all_plans(one);
    const Searched found = searched(one);
    expect_agreement(one, found, all);
    expect_within(1.02, found, all);
  }
}

// The same with a question that is changed, for a fourth of the cases.
void compare_with(std::uint64_t first_seed, const std::function<void(SearchQuestion&)>& change) {
  Tally tally;
  const std::uint64_t last_seed = first_seed + (number_of_cases() + 3) / 4;
  for (std::uint64_t seed = first_seed; seed < last_seed; ++seed) {
    RandomCase one = random_case(seed, 10'000);
    change(one.question);
    SCOPED_TRACE(about(one));
    const Enumerated all = all_plans(one);
    const Searched found = searched(one);
    expect_agreement(one, found, all);
    expect_within(1.02, found, all);
    tally.add(one, all, ratio_of(found, all));
  }
  tally.print();
  if (tally.cases < 25) return;
  EXPECT_GE((tally.cases - tally.infeasible) * 10, tally.cases);
}

TEST(SearchPeers, KeepsToTheRowsOfAPart) {
  compare_with(1'000'000, [](SearchQuestion& question) {
    question.part = std::max<std::int64_t>(1, question.rows / 3);
  });
}

TEST(SearchPeers, KeepsToTheReplicas) {
  compare_with(2'000'000, [](SearchQuestion& question) {
    question.replicas = std::min<int>(2, static_cast<int>(question.cards.size()));
  });
}

TEST(SearchPeers, KeepsToTheStages) {
  compare_with(3'000'000, [](SearchQuestion& question) {
    question.stages = std::min<int>(2, static_cast<int>(question.cards.size()));
  });
}

TEST(SearchPeers, BalancesWhatStaysOnCards) {
  compare_with(4'000'000, [](SearchQuestion& question) { question.balance = true; });
}

// ---- Cards that are needed

// By trying one card, two, and so on, with a list of all plans.
std::optional<int> counted_cards(SearchQuestion question, const PlanCard& card, Pricer& pricer) {
  for (int cards = 1; cards <= pricer.layers(); ++cards) {
    question.cards.assign(static_cast<std::size_t>(cards), card);
    question.replicas = 1;
    question.stages = cards;
    if (enumerate_plans(question, pricer).fitting > 0) return cards;
  }
  return std::nullopt;
}

TEST(CardsNeededPeers, AreTheFewestThatHoldAReplica) {
  std::set<std::optional<int>> answers;
  for (std::uint64_t seed = 1; seed <= number_of_cases(); ++seed) {
    RandomCase one = random_case(5'000'000 + seed, 5'000);
    if (one.model.layers.size() > 6) continue;
    SCOPED_TRACE(about(one));
    RandomPricer pricer = one.pricer(), listed = one.pricer();
    const PlanCard card = one.question.cards.front();
    const std::optional<int> needed = cards_needed(one.question, card, pricer);
    EXPECT_EQ(needed, counted_cards(one.question, card, listed));
    answers.insert(needed);
  }
  if (number_of_cases() >= 100) {
    EXPECT_GE(answers.size(), 4U);
  }
}

}  // namespace
}  // namespace headroom::plan
