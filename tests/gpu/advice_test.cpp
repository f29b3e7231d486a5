#include "headroom/gpu/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Card busy(int index, std::vector<GpuProcess> processes) {
  Bytes used{0};
  for (const auto& process : processes) used += process.used.value_or(Bytes{0});
  Card busy_card = card(index, used);
  busy_card.utilization = 90;
  busy_card.processes = std::move(processes);
  return busy_card;
}

std::vector<std::string> lines(std::vector<Card> cards) {
  return advise(machine_of(std::move(cards))).lines;
}

TEST(Advise, SaysNothingWhereNothingIsToBeDone) {
  EXPECT_THAT(lines({busy(0, {process(1, 12_GiB)})}), IsEmpty());
  EXPECT_THAT(lines({}), IsEmpty());
  EXPECT_THAT(lines({card(0), card(1)}), IsEmpty()) << "everything idle is no news";
}

TEST(Advise, NamesIdleCardsBesideBusyOnes) {
  EXPECT_THAT(lines({busy(0, {process(1, 12_GiB)}), card(1), card(2)}),
              ElementsAre("GPUs 1, 2 are idle: 24.00 GiB free on each"));
  EXPECT_THAT(lines({busy(0, {process(1, 12_GiB)}), card(1)}),
              ElementsAre("GPU 1 is idle: 24.00 GiB free"));
}

TEST(Advise, NamesTheJobThatCouldMoveFromACrowdedCard) {
  const auto crowded = busy(0, {process(11, 16_GiB), process(12, 6_GiB, "python small.py")});
  EXPECT_THAT(lines({crowded, card(1)})[0],
              AllOf(HasSubstr("GPU 0 has 2.00 GiB left for 2 jobs"), HasSubstr("PID 12"),
                    HasSubstr("would fit on idle GPU 1")));
  EXPECT_THAT(lines({crowded, busy(1, {process(13, 9_GiB)})}), IsEmpty()) << "nowhere to move";
  EXPECT_THAT(lines({busy(0, {process(11, 23_GiB)}), card(1)}), ElementsAre(HasSubstr("is idle")))
      << "one job alone does not crowd";
}

TEST(Advise, NamesMemoryThatIsHeldWithoutWork) {
  Card held = busy(0, {process(7, 20_GiB)});
  held.utilization = 0;
  EXPECT_THAT(lines({held}),
              ElementsAre(AllOf(HasSubstr("GPU 0 does nothing now"), HasSubstr("PID 7"))));
  held.utilization.reset();
  EXPECT_THAT(lines({held}), IsEmpty()) << "unknown is no reason";
}

TEST(Advise, NamesBytesWithoutAHolderOnEveryCard) {
  Card untold = busy(0, {process(7, 8_GiB), process(8, std::nullopt)});
  Card lost = busy(1, {process(9, 4_GiB)});
  lost.memory->used = 12_GiB;
  lost.memory->free = 12_GiB;
  EXPECT_THAT(lines({untold, lost}),
              ElementsAre(AllOf(HasSubstr("GPU 1: 8.00 GiB are held by no listed process"),
                                HasSubstr("headroom clean"))));
}

TEST(Advise, AsksForPersistenceOnce) {
  Card sleepy = busy(0, {process(1, 12_GiB)});
  sleepy.persistence = false;
  Card other = sleepy;
  other.index = 1;
  EXPECT_THAT(lines({sleepy, other}), ElementsAre(HasSubstr("nvidia-smi -pm 1")));
}

TEST(Advise, EndsWithACommandThatCanBeTyped) {
  EXPECT_EQ(advise(machine_of({card(0)})).next_command, "headroom pick --need 2GiB");
  EXPECT_EQ(advise(machine_of({busy(0, {process(1, 23_GiB)})})).next_command, "headroom clean");
  EXPECT_EQ(advise(Machine{}).next_command, "headroom doctor");
}

}  // namespace
}  // namespace headroom::gpu
