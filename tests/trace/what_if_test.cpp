// One trace on several cards. Figures are worked out from the rules at the head of replay_test.cpp.
#include "headroom/trace/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/trace/plain_reader.h"

namespace headroom::testing {
namespace {

using namespace headroom::literals;
using namespace headroom::trace;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four blocks of 9 MiB: two and two in segments of 20 MiB, or one after the other in one range. The
// two in the middle go, and 18 MiB are wanted: the range has 18 MiB in one piece, the segments have
// 9 + 2 and 9.
constexpr std::string_view kTwoInTheMiddle =
    "a 1 9437184\na 2 9437184\na 3 9437184\na 4 9437184\nf 2\nf 3\na 5 18874368\n";
constexpr const char* kExpandable = "expandable_segments:True";

WhatIf what_if_of(std::string_view text, const std::vector<CardSetup>& setups) {
  const auto trace = read_plain(Input::memory("x.txt", text));
  return what_if(*trace, setups);
}

SmallestCapacity smallest_of(std::string_view text, const CardSetup& setup) {
  const auto trace = read_plain(Input::memory("x.txt", text));
  Operations operations(*trace);
  return LoadedTrace(*trace, operations).smallest_capacity(setup);
}

TEST(WhatIf, PlaysToEveryCard) {
  const auto cards = what_if_of(kTwoInTheMiddle, {{.settings = "", .capacity = 40_MiB},
                                                  {.settings = kExpandable, .capacity = 40_MiB},
                                                  {.settings = "", .capacity = 58_MiB}})
                         .cards;
  ASSERT_EQ(cards.size(), 3U);
  EXPECT_THAT(cards[0].refused, ElementsAre(6));
  EXPECT_THAT(cards[1].refused, IsEmpty());
  EXPECT_THAT(cards[2].refused, IsEmpty());
  EXPECT_EQ(cards[2].reserved_peak.peak, 58_MiB) << "20 + 20 + 18";
  EXPECT_EQ(best(cards), 1U);
}

TEST(WhatIf, GivesEachCardWhatAReplayGives) {
  std::vector<CardSetup> setups;
  for (int i = 0; i < 9; ++i) setups.push_back({.capacity = 10_MiB * (i + 1)});
  const WhatIf together = what_if_of(kTwoInTheMiddle, setups);
  for (std::size_t i = 0; i < setups.size(); ++i) {
    const auto trace = read_plain(Input::memory("x.txt", kTwoInTheMiddle));
    const CardReplay alone = replay(*trace, {.setup = setups[i]}).card;
    EXPECT_EQ(together.cards[i].statistics, alone.statistics) << i;
    EXPECT_EQ(together.cards[i].refused, alone.refused) << i;
  }
}

TEST(WhatIf, PassesOnACardsExceptions) {
  EXPECT_THROW((void)what_if_of("a 1 5\na 1 5\n", {{}, {}, {}}), InputError);
}

TEST(WhatIf, SaysWhatWouldHaveBeenAvoidedAndSaved) {
  const auto cards = what_if_of(kTwoInTheMiddle, {{.capacity = 40_MiB},
                                                  {.settings = kExpandable, .capacity = 40_MiB},
                                                  {},
                                                  {.settings = kExpandable}})
                         .cards;
  EXPECT_EQ(verdict(cards[0], cards[1]),
            "expandable_segments:True would have avoided the out-of-memory");
  EXPECT_EQ(
      verdict(cards[2], cards[3]),
      "expandable_segments:True would have saved 18.0 MiB of reserved memory (40.0 MiB instead "
      "of 58.0 MiB)");
  EXPECT_THAT(verdict(cards[2], cards[2]), HasSubstr("no other settings"));
}

TEST(UsualSetups, AddToWhatIsSet) {
  About about;
  about.settings = "max_split_size_mb:64";
  std::vector<std::string> texts;
  for (const CardSetup& setup : usual_setups({}, about))
    texts.push_back(setup.settings.value_or("as it is"));
  EXPECT_THAT(texts, ElementsAre("as it is", "max_split_size_mb:64,roundup_power2_divisions:4"));
}

TEST(UsualSetups, NeverSplitLessWhereSegmentsExpand) {
  for (const CardSetup& setup : usual_setups({.settings = "expandable_segments:True"}, {}))
    EXPECT_EQ(setup.settings.value().find("max_split_size_mb"), std::string::npos);
}

// Without a memory fraction it does nothing.
TEST(UsualSetups, TryGarbageCollectionOnlyWithAFraction) {
  const auto collects = [](const CardSetup& setup) {
    return setup.settings && setup.settings->find("garbage") != std::string::npos;
  };
  EXPECT_FALSE(collects(usual_setups({}, {}).back()));
  EXPECT_TRUE(collects(usual_setups({.fraction = 0.8}, {}).back()));
}

// ---- The smallest card ----

// Segments: 20 + 20 + 18. The range is mapped by pages of 20 MiB: two of them.
TEST(SmallestCapacity, IsExact) {
  const SmallestCapacity segments = smallest_of(kTwoInTheMiddle, {});
  EXPECT_EQ(segments.capacity, 58_MiB);
  EXPECT_EQ(segments.step, 2_MiB);
  EXPECT_EQ(smallest_of(kTwoInTheMiddle, {.settings = kExpandable}).capacity, 40_MiB);
}

// Half of 60 MiB may be reserved.
TEST(SmallestCapacity, CountsTheFraction) {
  EXPECT_EQ(smallest_of("a 1 31457280\n", {.fraction = 0.5}).capacity, 60_MiB);
}

// Free memory can be given back and taken again: 30 + 50 MiB fit into 50, one after the other.
TEST(SmallestCapacity, IsLessThanThePeakIfCachedMemoryCanBeReleased) {
  EXPECT_EQ(smallest_of("a 1 31457280\nf 1\na 2 52428800\n", {}).capacity, 50_MiB);
}

TEST(SmallestCapacity, IsNoneWhenEvenTheLargestCardRefuses) {
  EXPECT_EQ(smallest_of("a 1 1125899906842624\n", {}).capacity, std::nullopt);
}

TEST(SmallestCapacity, IsOneStepForAnEmptyTrace) {
  EXPECT_EQ(smallest_of("", {}).capacity, 2_MiB);
}

}  // namespace
}  // namespace headroom::testing
