// `headroom --line`: one short line whatever the machine.
#include "headroom/cli/core/view/machine_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/top/pictures.h"

namespace headroom::cli {
namespace {

using namespace gpu::fixtures;
using ::testing::HasSubstr;

constexpr Terminal kWide{.unicode = true, .width = 80};

std::vector<gpu::Card> cards_in_use(int count) {
  std::vector<gpu::Card> cards;
  for (int i = 0; i < count; ++i) cards.push_back(cli::fixtures::busy_card(i));
  return cards;
}

TEST(MachineLine, NamesEachCard) {
  auto cards = cards_in_use(2);
  cards.push_back(card(2));
  EXPECT_EQ(machine_line(machine_of(cards), kWide),
            "1/3 free · 0: 12.0/24.0G 98% · 1: 12.0/24.0G 98% · 2: 0.0/24.0G 0%");
}

TEST(MachineLine, GetsShorterWithMoreCards) {
  EXPECT_EQ(machine_line(machine_of(cards_in_use(8)), kWide),
            "0/8 free · 0 50% · 1 50% · 2 50% · 3 50% · 4 50% · 5 50% · 6 50% · 7 50%");
  EXPECT_EQ(machine_line(machine_of(cards_in_use(16)), kWide), "0/16 free · 192/384G used");
  for (int count = 1; count <= 16; ++count)
    for (const int width : {30, 40, 60, 80, 200})
      EXPECT_LE(
          cells(machine_line(machine_of(cards_in_use(count)), {.unicode = true, .width = width})),
          static_cast<std::size_t>(width))
          << count;
}

TEST(MachineLine, IsAsciiWithoutUtf8) {
  EXPECT_EQ(machine_line(machine_of({card(0)}), {}), "1/1 free - 0: 0.0/24.0G 0%");
}

TEST(MachineLine, AnOldCardIsStaleAndNotFree) {
  gpu::Card old = card(0), unknown = card(1);
  old.sampled = Clock::now() - std::chrono::seconds(60);
  unknown.memory.reset();
  EXPECT_EQ(machine_line(machine_of({old, unknown}), kWide), "0/2 free · 0: stale · 1: ?");
}

TEST(MachineLine, SlicesStandForTheirCard) {
  EXPECT_THAT(machine_line(machine_of(mig_card(0)), kWide), HasSubstr("2/2 free · MIG-"));
}

TEST(MachineLine, WithoutCardsSaysSo) {
  gpu::Machine machine;
  machine.why_no_driver = "no NVIDIA driver was found";
  EXPECT_EQ(machine_line(machine, kWide), "no GPU driver");
  machine.silent = true;
  EXPECT_EQ(machine_line(machine, kWide), "GPU driver does not answer");
}

}  // namespace
}  // namespace headroom::cli
