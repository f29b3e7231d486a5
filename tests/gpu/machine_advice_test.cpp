// Each line of advice appears when its cause is there, and only then.

#include "headroom/gpu/machine_advice.h"

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Lines = std::vector<std::string>;

Lines advice(std::vector<Card> cards) {
  return advise(machine_of(std::move(cards))).lines;
}

// A card at work: one job with all that is used.
Card busy(int index, Bytes used = 20_GiB) {
  Card busy_card = card(index, used);
  busy_card.utilization = 95;
  busy_card.processes = {process(100 + index, used, "python train.py")};
  return busy_card;
}

// A full card with two jobs, of which the smaller has 3 GiB.
Card crowded(int index) {
  Card full = card(index, 22_GiB);
  full.utilization = 95;
  full.processes = {process(7, 19_GiB, "python big.py"), process(8, 3_GiB, "python small.py")};
  return full;
}

TEST(Advice, IsEmptyIfThereIsNothingToAdvise) {
  EXPECT_EQ(advice({card(0), card(1)}), Lines{}) << "all idle";
  EXPECT_EQ(advice({busy(0), busy(1)}), Lines{}) << "all at work";
  EXPECT_EQ(advice({}), Lines{});
}

TEST(Advice, NamesTheIdleCardsBesideBusyOnes) {
  EXPECT_EQ(advice({busy(0), card(1), card(2, 500_MiB)}),
            Lines{"GPUs 1, 2 are idle: 23.51 GiB free on each"});
  EXPECT_EQ(advice({busy(0), card(1)}), Lines{"GPU 1 is idle: 24.00 GiB free"});
}

TEST(Advice, ACardIsIdleOnlyIfThatIsKnown) {
  Card used = card(1, 700_MiB), unknown = card(2), stuck = card(3), computing = card(4);
  unknown.memory.reset();
  stuck.stuck = true;
  computing.processes = {hidden_process({})};
  EXPECT_EQ(advice({busy(0), used, unknown, stuck, computing}), Lines{});
  Card drawing = card(5, 300_MiB);
  drawing.processes = {process(9, 200_MiB, "Xorg")};
  drawing.processes->at(0).kind = ProcessKind::graphics;
  EXPECT_EQ(advice({busy(0), drawing}), Lines{"GPU 5 is idle: 23.71 GiB free"});
}

// "GPU 0 is idle: 24.00 GiB free", where leases had reserved 14 of them.
TEST(Advice, ACardThatALeaseHasReservedIsNotIdle) {
  Card reserved = card(1);
  reserved.withheld.now = 14_GiB;
  EXPECT_EQ(advice({busy(0), reserved}), Lines{});
  EXPECT_EQ(advice({crowded(0), reserved}), Lines{}) << "nor a place for a job to move to";
}

TEST(Advice, SaysWhichJobOfACrowdedCardWouldFitOnAnIdleOne) {
  const Lines lines = advice({crowded(0), card(1)});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "GPU 0 has 2.00 GiB left for 2 jobs: PID 8 alice 3.00 GiB (python small.py) would fit "
            "on idle GPU 1");
}

TEST(Advice, SuggestsNoMoveWithoutAnIdleCardOfEnoughMemory) {
  EXPECT_EQ(advice({crowded(0), busy(1)}), Lines{});
  EXPECT_EQ(advice({crowded(0), card(1, 0_GiB, 2_GiB)}), Lines{"GPU 1 is idle: 2.00 GiB free"});
  EXPECT_EQ(advice({busy(0, 23_GiB), card(1)}), Lines{"GPU 1 is idle: 24.00 GiB free"})
      << "one job alone is not crowded";
}

TEST(Advice, NamesTheHolderOfMemoryOnAnIdleCard) {
  Card held = busy(0, 5_GiB);
  held.utilization = 0;
  EXPECT_EQ(advice({held, busy(1)}), Lines{"GPU 0 computes nothing now, but PID 100 alice 5.00 GiB "
                                           "(python train.py) holds memory on it"});
  held.utilization.reset();
  EXPECT_EQ(advice({held, busy(1)}), Lines{}) << "what it does is unknown";
  Card little = busy(0, 900_MiB);
  little.utilization = 0;
  EXPECT_EQ(advice({little, busy(1)}), Lines{}) << "not worth a word";
}

TEST(Advice, ReportsMemoryOfNoListedProcess) {
  Card held = card(0, 12_GiB);
  held.utilization = 50;
  held.processes = {process(7, 4_GiB)};
  EXPECT_EQ(advice({held, busy(1)}),
            Lines{"GPU 0: 8.00 GiB are held by no listed process; headroom clean explains"});
  held.processes->at(0).used = 11_GiB;
  EXPECT_EQ(advice({held, busy(1)}), Lines{}) << "a context accounts for the rest";
}

// A driver that reports no bytes for one card once silenced the advice for all cards behind it.
TEST(Advice, ACardWithoutProcessSizesDoesNotSilenceOthers) {
  Card untold = busy(0);
  untold.processes = {process(7, {})};
  Card held = card(1, 12_GiB);
  held.utilization = 50;
  EXPECT_EQ(advice({untold, held}),
            Lines{"GPU 1: 12.00 GiB are held by no listed process; headroom clean explains"});
}

TEST(Advice, PersistenceModeIsMentionedOnceWhereItIsOff) {
  Card first = busy(0), second = busy(1), unknown = busy(2);
  first.persistence = second.persistence = false;
  unknown.persistence.reset();
  const Lines lines = advice({first, second, unknown});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("persistence mode is off")) << lines[0];
  EXPECT_NE(lines[0].find("nvidia-smi -pm 1"), std::string::npos) << lines[0];
  EXPECT_EQ(advice({unknown, busy(1)}), Lines{});
}

TEST(Advice, ACutCardIsNotIdleAndItsBytesAreItsSlices) {
  std::vector<Card> cards = mig_card(1);
  cards[0].memory = card(1, 20_GiB, 40_GiB).memory;
  cards.insert(cards.begin(), busy(0));
  EXPECT_EQ(advice(cards),
            Lines{"GPUs MIG-b0000000, MIG-b1000000 are idle: 5.00 GiB free on each"});
}

// ---- The next command ----

std::string next(Machine machine) {
  return advise(machine).next_command;
}

TEST(NextCommand, FitsTheMachine) {
  EXPECT_EQ(next(machine_of({})), "headroom doctor");
  EXPECT_EQ(next(machine_of({card(0), busy(1)})), "headroom pick --need 2GiB");
  EXPECT_EQ(next(machine_of({busy(0, 23_GiB)})), "headroom clean");
  Card unknown = card(0);
  unknown.memory.reset();
  EXPECT_EQ(next(machine_of({unknown})), "headroom clean");
}

TEST(NextCommand, OfASimulatedBoxIsAboutSimulatedCards) {
  Machine box;
  box.simulated = true;
  EXPECT_EQ(next(box), "headroom cards");
  box.cards = {card(0)};
  EXPECT_EQ(next(box), "headroom models");
  box.cards = {busy(0, 23_GiB)};
  EXPECT_EQ(next(box), "headroom gpus --processes");
}

}  // namespace
}  // namespace headroom::gpu
