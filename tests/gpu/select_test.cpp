// The choice of a card, and the sentence when no card is chosen.

#include "headroom/gpu/select.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/gpu/fixtures/cards.h"
#include "tests/support/contains.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;

std::vector<int> indices(const Selection& selection) {
  std::vector<int> picked;
  for (const auto& pick : selection.picked) picked.push_back(pick.card.index);
  return picked;
}

using Indices = std::vector<int>;

// Used 20, 4, 12 and 4 GiB of 24; loads 0, 90, 10 and 50 percent.
Machine four_cards() {
  Machine machine = machine_of({card(0, 20_GiB), card(1, 4_GiB), card(2, 12_GiB), card(3, 4_GiB)});
  const int loads[] = {0, 90, 10, 50};
  for (int i = 0; i < 4; ++i) machine.cards[static_cast<std::size_t>(i)].utilization = loads[i];
  return machine;
}

TEST(BestDevice, PrefersTheOneWithMostFreeMemoryAndOfEqualsTheFirst) {
  const Selection best = find_best_device(four_cards(), {.need = 1_GiB});
  EXPECT_EQ(indices(best), Indices{1});
  EXPECT_EQ(best.picked[0].usable, 20_GiB);
  EXPECT_EQ(best.sentence, "");
  EXPECT_FALSE(best.cpu || best.stale || best.shortfall);
}

TEST(BestDevice, LeastLoadedLooksAtTheLoadFirst) {
  const Machine machine = four_cards();
  EXPECT_EQ(indices(find_best_device(machine, {.order = Order::least_loaded})), Indices{0});
  EXPECT_EQ(indices(find_best_device(machine, {.need = 5_GiB, .order = Order::least_loaded})),
            Indices{2});
}

TEST(BestDevice, ACardThatDoesNotTellItsLoadCountsAsLoaded) {
  Machine machine = machine_of({card(0), card(1, 20_GiB)});
  machine.cards[0].utilization.reset();
  machine.cards[1].utilization = 100;
  EXPECT_EQ(indices(find_best_device(machine, {.order = Order::least_loaded})), Indices{1});
}

TEST(BestDevice, IndexTakesTheFirstThatHasRoom) {
  EXPECT_EQ(indices(find_best_device(four_cards(), {.need = 8_GiB, .order = Order::index})),
            Indices{1});
}

TEST(BestDevice, SeveralCardsComeBestFirstAndAllOrNone) {
  EXPECT_EQ(indices(find_best_device(four_cards(), {.need = 5_GiB, .count = 3})),
            (Indices{1, 3, 2}));
  const Selection none = find_best_device(four_cards(), {.need = 5_GiB, .count = 4});
  EXPECT_EQ(indices(none), Indices{});
  EXPECT_EQ(none.shortfall, 1_GiB);
  EXPECT_TRUE(contains(none.sentence, "on 4 cards, 3 found")) << none.sentence;
}

TEST(BestDevice, TheNeedItselfIsEnough) {
  const Machine machine = machine_of({card(0, 14_GiB)});
  EXPECT_EQ(indices(find_best_device(machine, {.need = 10_GiB})), Indices{0});
  EXPECT_EQ(indices(find_best_device(machine, {.need = 10_GiB + 1_B})), Indices{});
}

TEST(BestDevice, DataOlderThanTwoSecondsDecidesNothing) {
  Machine machine = machine_of({card(0), card(1, 20_GiB)});
  const auto now = Clock::now();
  machine.cards[0].sampled = now - std::chrono::milliseconds(2001);
  machine.cards[1].sampled = now - std::chrono::milliseconds(1999);
  const auto pick = [&](Bytes need) {
    return find_best_device(machine, {.need = need}, usable_now, now);
  };
  EXPECT_EQ(indices(pick(1_GiB)), Indices{1});
  const Selection none = pick(10_GiB);
  EXPECT_EQ(indices(none), Indices{});
  EXPECT_FALSE(none.stale);
  EXPECT_TRUE(contains(none.sentence, "the driver does not answer for GPU 0")) << none.sentence;
}

TEST(BestDevice, WhenAllDataIsOldItSaysHowOldAndIsNoShortage) {
  Machine machine = machine_of({card(0), card(1)});
  const auto now = Clock::now();
  machine.cards[0].sampled = now - std::chrono::seconds(7);
  machine.cards[1].sampled = now - std::chrono::seconds(3);
  const Selection stale = find_best_device(machine, {.allow_cpu = true}, usable_now, now);
  EXPECT_TRUE(stale.stale && stale.picked.empty() && !stale.shortfall);
  EXPECT_FALSE(stale.cpu) << "old data is no proof that the cards are full";
  EXPECT_TRUE(contains(stale.sentence, "data is 3 s old")) << stale.sentence;
}

TEST(BestDevice, ADriverThatNeverAnsweredIsStaleToo) {
  Machine machine;
  machine.silent = true;
  const auto now = Clock::now();
  machine.asked = now - std::chrono::seconds(3);
  const Selection stale = find_best_device(machine, {.allow_cpu = true}, usable_now, now);
  EXPECT_TRUE(stale.stale && !stale.cpu);
  EXPECT_TRUE(contains(stale.sentence, "data is 3 s old")) << stale.sentence;
}

TEST(BestDevice, AStuckCardIsNotTakenHoweverYoungItsData) {
  Machine machine = machine_of({card(0), card(1, 20_GiB)});
  machine.cards[0].stuck = true;
  EXPECT_EQ(indices(find_best_device(machine, {})), Indices{1});
}

TEST(BestDevice, ACardWithoutAnySampleIsNotTaken) {
  Machine machine = machine_of({card(0)});
  machine.cards[0].sampled.reset();
  EXPECT_TRUE(find_best_device(machine, {}).stale);
}

TEST(BestDevice, UnknownMemoryIsNeverTakenEvenForANeedOf0) {
  Machine machine = machine_of({card(0)});
  machine.cards[0].memory.reset();
  const Selection none = find_best_device(machine, {.need = 0_B});
  EXPECT_EQ(indices(none), Indices{});
  EXPECT_FALSE(none.stale || none.shortfall);
  EXPECT_FALSE(none.sentence.empty());
}

TEST(BestDevice, UsesTheGivenFunctionForUsableMemory) {
  const auto leased = [](const Card& card) -> std::optional<Bytes> {
    if (card.index == 1) return {};
    return card.index == 0 ? 3_GiB : 2_GiB;
  };
  const Machine machine = machine_of({card(0), card(1), card(2)});
  const Selection best = find_best_device(machine, {.need = 3_GiB}, leased);
  EXPECT_EQ(indices(best), Indices{0});
  EXPECT_EQ(best.picked[0].usable, 3_GiB);
  EXPECT_EQ(find_best_device(machine, {.need = 4_GiB}, leased).shortfall, 1_GiB);
}

TEST(BestDevice, SlicesAreTakenInPlaceOfTheirCard) {
  const Selection best = find_best_device(machine_of(mig_card(0)), {.need = 4_GiB, .count = 2});
  ASSERT_EQ(best.picked.size(), 2u);
  EXPECT_TRUE(best.picked[0].card.slice && best.picked[1].card.slice);
  const auto greedy = [](const Card&) -> std::optional<Bytes> { return 100_GiB; };
  for (const auto& pick : find_best_device(machine_of(mig_card(0)), {}, greedy).picked)
    EXPECT_FALSE(pick.card.mig_enabled) << "whatever the function says";
}

TEST(BestDevice, AShortageNamesWhatIsMissingAndWhoHoldsIt) {
  Machine machine = machine_of({card(0, 23_GiB), card(1, 20_GiB)});
  machine.cards[0].processes = {process(7, 23_GiB)};
  machine.cards[1].processes = {process(10, 1_GiB), process(11, 9_GiB, "python train.py"),
                                hidden_process(7_GiB), process(13, {}), process(14, 2_GiB)};
  const Selection none = find_best_device(machine, {.need = 10_GiB});
  EXPECT_EQ(none.shortfall, 6_GiB);
  ASSERT_EQ(none.holders.size(), 5u);
  EXPECT_EQ(none.holders[0].process.pid, 11);
  EXPECT_EQ(none.holders[4].process.pid, 13) << "unknown bytes come last";
  EXPECT_EQ(none.sentence,
            "need 10.00 GiB; best is GPU 1 with 4.00 GiB usable, short by 6.00 GiB; held by PID 11 "
            "alice 9.00 GiB (python train.py), a process of another namespace 7.00 GiB, PID 14 "
            "alice 2.00 GiB (python), 2 more");
}

// A card full of memory of no listed process was refused without naming its holder.
TEST(BestDevice, AShortageNamesMemoryOfNoListedProcess) {
  Machine machine = machine_of({card(0, 20_GiB)});
  machine.cards[0].processes = {process(7, 2_GiB)};
  const Selection none = find_best_device(machine, {.need = 10_GiB});
  EXPECT_EQ(none.unlisted, 18_GiB);
  EXPECT_TRUE(contains(none.sentence, ", and 18.00 GiB by no listed process")) << none.sentence;
  machine.cards[0].processes = {};
  EXPECT_FALSE(find_best_device(machine, {.need = 10_GiB}).unlisted) << "not known";
}

TEST(BestDevice, TheCpuIsTakenOnlyIfAllowedAndItIsSaid) {
  const Machine machine = machine_of({card(0, 23_GiB)});
  const Selection refused = find_best_device(machine, {.need = 10_GiB});
  EXPECT_FALSE(refused.cpu);
  const Selection allowed = find_best_device(machine, {.need = 10_GiB, .allow_cpu = true});
  EXPECT_TRUE(allowed.cpu && allowed.picked.empty());
  EXPECT_TRUE(allowed.sentence.starts_with("taking the CPU: need 10.00 GiB")) << allowed.sentence;
  EXPECT_FALSE(find_best_device(machine, {.need = 1_GiB, .allow_cpu = true}).cpu);
}

TEST(BestDevice, WithoutADriverTheReasonIsThatSentence) {
  Machine machine;
  machine.why_no_driver = "no NVIDIA driver here";
  EXPECT_EQ(find_best_device(machine, {}).sentence, "no NVIDIA driver here");
  const Selection cpu = find_best_device(machine, {.allow_cpu = true});
  EXPECT_TRUE(cpu.cpu);
  EXPECT_EQ(cpu.sentence, "taking the CPU: no NVIDIA driver here");
}

// ---- What a card could give now ----

TEST(UsableNow, IsTheFreeMemoryOrUnknown) {
  Card some = card(0, 4_GiB);
  EXPECT_EQ(usable_now(some), 20_GiB);
  some.stuck = true;
  EXPECT_EQ(usable_now(some), std::nullopt);
  some.stuck = false;
  some.memory.reset();
  EXPECT_EQ(usable_now(some), std::nullopt);
}

TEST(UsableNow, AnExclusiveCardIsForOneContext) {
  for (const ComputeMode mode : {ComputeMode::exclusive_process, ComputeMode::exclusive_thread}) {
    Card exclusive = card(0);
    exclusive.compute_mode = mode;
    EXPECT_EQ(usable_now(exclusive), 24_GiB);
    exclusive.processes = {process(1, 1_GiB)};
    exclusive.processes->at(0).kind = ProcessKind::graphics;
    EXPECT_EQ(usable_now(exclusive), 24_GiB) << "a display holds no compute context";
    exclusive.processes->push_back(hidden_process({}));
    EXPECT_EQ(usable_now(exclusive), 0_B);
    exclusive.processes.reset();
    EXPECT_EQ(usable_now(exclusive), std::nullopt) << "who is there is unknown";
  }
}

TEST(UsableNow, AProhibitedOrCutCardGivesNothing) {
  Card prohibited = card(0);
  prohibited.compute_mode = ComputeMode::prohibited;
  EXPECT_EQ(usable_now(prohibited), 0_B);
  EXPECT_EQ(usable_now(mig_card(0)[0]), 0_B);
  EXPECT_EQ(usable_now(mig_card(0)[1]), 5_GiB);
}

// ---- Words ----

TEST(ParseOrder, TakesTheThreeNamesAndNamesTheNearest) {
  EXPECT_EQ(parse_order("most-free"), Order::most_free);
  EXPECT_EQ(parse_order("least-loaded"), Order::least_loaded);
  EXPECT_EQ(parse_order("index"), Order::index);
  try {
    static_cast<void>(parse_order("least-load"));
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_TRUE(contains(error.what(), "try least-loaded")) << error.what();
  }
}

TEST(DescribeProcess, CutsLongCommandsAndMakesNothingUp) {
  EXPECT_EQ(describe(process(5, 1_GiB, std::string(41, 'x'))),
            "PID 5 alice 1.00 GiB (" + std::string(40, 'x') + "...)");
  EXPECT_EQ(describe(hidden_process({})), "a process of another namespace");
  GpuProcess bare;
  bare.pid = 5;
  EXPECT_EQ(describe(bare), "PID 5 ?");
}

TEST(CardLabel, TellsSlicesApart) {
  EXPECT_EQ(label(card(3)), "GPU 3");
  EXPECT_EQ(label(mig_card(0)[2]), "GPU 0 slice MIG-a1000000");
}

}  // namespace
}  // namespace headroom::gpu
