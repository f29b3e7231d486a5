// The ring behind the graphs of `headroom top`.
#include "headroom/cli/core/top/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"

namespace headroom::cli {
namespace {

using namespace gpu::fixtures;
using ::testing::Each;
using ::testing::ElementsAre;

gpu::Machine at_load(int percent) {
  gpu::Card one = card(0, 12_GiB);
  one.utilization = percent;
  return machine_of({one});
}

TEST(TopHistory, IsUnknownBeforeTheFirstSample) {
  EXPECT_THAT(History().load(numbered(0), 4), Each(std::nullopt));
}

TEST(TopHistory, TheNewestSampleIsOnTheRight) {
  History history;
  for (const int load : {10, 20, 30}) history.add(at_load(load), Clock::now());
  const auto levels = history.load(numbered(0), History::kSamples);
  EXPECT_EQ(levels.back(), 30);
  EXPECT_EQ(levels.at(levels.size() - 3), 10);
  EXPECT_FALSE(levels.at(levels.size() - 4));
  EXPECT_EQ(history.memory(numbered(0), History::kSamples).back(), 50);
}

TEST(TopHistory, ACellShowsTheHighestOfItsSamples) {
  History history;
  for (int i = 0; i < History::kSamples; ++i) history.add(at_load(i % 60), Clock::now());
  EXPECT_THAT(history.load(numbered(0), 3), ElementsAre(59, 59, 59));
}

TEST(TopHistory, OldSamplesAreForgotten) {
  History history;
  history.add(at_load(99), Clock::now());
  for (int i = 0; i < 2 * History::kSamples; ++i) history.add(at_load(1), Clock::now());
  EXPECT_THAT(history.load(numbered(0), History::kSamples), Each(1));
}

TEST(TopHistory, AStaleCardAndOneThatDisappearsHaveGaps) {
  History history;
  history.add(at_load(40), Clock::now());
  history.add(at_load(50), Clock::now() + std::chrono::seconds(10));
  EXPECT_FALSE(history.load(numbered(0), History::kSamples).back());
  history.add(at_load(60), Clock::now());
  history.add(machine_of({}), Clock::now());
  const auto levels = history.load(numbered(0), History::kSamples);
  EXPECT_FALSE(levels.back());
  EXPECT_EQ(levels.at(levels.size() - 2), 60);
}

// The groups moved with each sample, and the graph flickered.
TEST(TopHistory, AGroupKeepsItsSamplesWhileTimeGoesOn) {
  History history;
  for (int i = 0; i < History::kSamples; ++i) history.add(at_load(i % 7 * 10), Clock::now());
  auto before = history.load(numbered(0), 60);
  history.add(at_load(0), Clock::now());
  auto after = history.load(numbered(0), 60);
  before.erase(before.begin(), before.begin() + 2);
  after.erase(after.begin());
  after.pop_back();
  EXPECT_EQ(std::vector(after.begin(), after.end()), before);
}

}  // namespace
}  // namespace headroom::cli
