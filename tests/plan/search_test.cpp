// The search with models that are reckoned by hand, and with a large one. search_peers_test.cpp has
// the random ones.
#include "headroom/plan/search.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

#include "headroom/base/error.h"
#include "tests/plan/enumerate_plans.h"
#include "tests/plan/random_pricer.h"

namespace headroom::plan {
namespace {

using namespace headroom::literals;

// Four layers of one second forward and two backward, of 10 GiB each, and no activations.
RandomModel four_layers() {
  RandomModel model;
  const RandomLayer layer{.weights = 10.0 * (1 << 30), .forward = 1, .backward = 2};
  model.layers.assign(4, layer);
  return model;
}

SearchQuestion question_with(int cards, PlanCard card) {
  SearchQuestion question;
  question.cards.assign(static_cast<std::size_t>(cards), card);
  return question;
}

TEST(Search, CutsAModelThatNoCardHolds) {
  RandomPricer pricer{four_layers()};
  SearchQuestion question = question_with(2, {.resident = 20_GiB, .reserved = 21_GiB});
  question.rows = 4;
  const Searched found = search(question, pricer);
  ASSERT_NE(found.best(), nullptr);
  EXPECT_EQ(found.best()->stages.size(), 2U);
  // Two stages of two layers, four parts of a row: (4 + 2 - 1) x 2 layers x 3 s.
  EXPECT_EQ(found.best()->parts, 4);
  EXPECT_NEAR(found.best()->seconds, 30, 1e-9);
  ASSERT_FALSE(found.considered.back().best.has_value());
  EXPECT_EQ(found.considered.back().refusal->allowed, 20_GiB);
}

TEST(Search, SaysHowMuchACardLacks) {
  RandomPricer pricer{four_layers()};
  const Searched found = search(question_with(1, {.resident = 30_GiB, .reserved = 50_GiB}), pricer);
  EXPECT_EQ(found.best(), nullptr);
  ASSERT_EQ(found.considered.size(), 1U);
  const Refusal& why = found.considered.front().refusal.value();
  EXPECT_TRUE(why.is_resident);
  EXPECT_EQ(why.allowed, 30_GiB);
  EXPECT_GE(why.needed, 37_GiB);
  EXPECT_LE(why.needed, 40_GiB);
}

// Each card of a group is too small in its own way: the refusal's card is the one that lacks more.
TEST(Search, NamesTheCardThatLacksTheMost) {
  RandomPricer pricer{four_layers()};
  SearchQuestion question;
  question.cards = {{.resident = 50_GiB, .reserved = 30_GiB},
                    {.resident = 5_GiB, .reserved = 60_GiB}};
  question.rows = 2;
  question.replicas = 2;
  const Searched found = search(question, pricer);
  ASSERT_EQ(found.considered.size(), 1U);
  const Refusal& why = found.considered.front().refusal.value();
  EXPECT_EQ(why.card, 1);
  EXPECT_TRUE(why.is_resident);
  EXPECT_EQ(why.allowed, 5_GiB);
}

// 12 and 10 GiB: the mean is 11, and 12 is within 15 % of it. Lower bounds of the two may say
// otherwise.
TEST(Search, BalancesByWhatIsCertain) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    RandomModel model = four_layers();
    model.seed = seed;
    model.layers.resize(2);
    model.layers.front().weights *= 1.2;
    RandomPricer pricer{model};
    SearchQuestion question = question_with(2, {.resident = 13_GiB, .reserved = 14_GiB});
    question.balance = true;
    EXPECT_NE(search(question, pricer).best(), nullptr) << seed;
  }
}

TEST(Search, RefusesAQuestionWithoutCardsRowsTechniquesOrForms) {
  RandomPricer pricer{four_layers()};
  const PlanCard card{.resident = 50_GiB, .reserved = 60_GiB};
  const SearchQuestion whole = question_with(1, card);
  EXPECT_NE(search(whole, pricer).best(), nullptr);
  const auto refused = [&](auto change) {
    SearchQuestion question = whole;
    change(question);
    EXPECT_THROW((void)search(question, pricer), UsageError);
  };
  refused([](SearchQuestion& question) { question.cards.clear(); });
  refused([](SearchQuestion& question) { question.rows = 0; });
  refused([](SearchQuestion& question) { question.techniques = 0; });
  refused([](SearchQuestion& question) { question.checkpointing.clear(); });
}

// With three stages the first has three parts that wait, and its card lacks a GiB; with two it has
// not.
TEST(CardsNeeded, IsNotMoreBecauseMoreStagesNeedMore) {
  RandomModel model = four_layers();
  model.layers.resize(3);
  model.layers.front().weights *= 2;
  model.layers.front().kept = 1.0 * (1 << 30);
  RandomPricer pricer{model};
  SearchQuestion question;
  question.rows = 8;
  question.checkpointing = {false};
  EXPECT_EQ(cards_needed(question, {.resident = 21_GiB, .reserved = 23_GiB}, pricer), 2);
}

// ---- Large spaces

TEST(Search, PlansEightyLayersOnSixtyFourCardsWithFewDryRuns) {
  Dice dice(80);
  RandomPricer pricer(random_model(dice, 80));
  const StageMemory whole = pricer.exact({.form = {}, .count = 80});
  // A fifth of the model fits on a card.
  SearchQuestion question =
      question_with(64, {.resident = whole.resident / 5, .reserved = whole.resident / 5 + 2_GiB});
  question.rows = 256;
  question.techniques = 2;
  const std::int64_t before = pricer.exact_calls();
  const Searched found = search(question, pricer);
  ASSERT_NE(found.best(), nullptr);
  std::printf("[ search   ] 64 cards, 80 layers: looked at %lld, %lld exact prices\n",
              static_cast<long long>(found.looked_at),
              static_cast<long long>(pricer.exact_calls() - before));
  EXPECT_LT(pricer.exact_calls() - before, 3'000);
  EXPECT_TRUE(fits(question, *found.best()));
}

}  // namespace
}  // namespace headroom::plan
