// The lives of tensors and the card's memory at every instant, whole and thinned.
#include "headroom/page/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "headroom/base/error.h"
#include "headroom/page/thinning.h"
#include "tests/trace/written_events.h"

namespace headroom::page {
namespace {

using namespace headroom::literals;
using namespace headroom::trace;
using namespace headroom::trace::testing;
using ::testing::ElementsAre;
using ::testing::Pair;

// Requests, whose frees complete at once.
const About kRequests{.format = Format::plain};

Event in(Event event, Phase phase, std::uint32_t step) {
  event.phase = phase;
  event.step = step;
  return event;
}

// Random allocations and frees of up to 4 MiB, with a step for every hundred events.
std::vector<Event> random_events(int count) {
  std::mt19937 random(7);
  std::vector<Event> events;
  std::vector<std::uint64_t> live;
  std::uint64_t id = 0;
  for (int i = 0; i < count; ++i) {
    if (live.empty() || random() % 5 < 3) {
      live.push_back(++id);
      events.push_back(alloc(id, Bytes{1 + static_cast<std::int64_t>(random() % (4 << 20))}));
    } else {
      std::swap(live[random() % live.size()], live.back());
      events.push_back(free_requested(live.back()));
      live.pop_back();
    }
    events.back().step = static_cast<std::uint32_t>(i / 100);
  }
  return events;
}

Bytes sum_of_blocks(const Timeline& timeline, Instant instant) {
  Bytes sum;
  for (const std::uint32_t index : living_at(timeline, instant))
    sum += timeline.tensors[index].block;
  return sum;
}

TEST(Timeline, KnowsEachLifeAndTheCardAfterEachChange) {
  const auto trace = trace_of({alloc(1, 30_MiB), event_of(Kind::mark), alloc(2, Bytes{1000}),
                               free_requested(1), alloc(3, 1_MiB)});
  const Timeline timeline = timeline_of(*trace);
  EXPECT_THAT(timeline.event_numbers, ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(timeline.allocated, ElementsAre(30_MiB, 30_MiB + 1_KiB, 1_KiB, 1_MiB + 1_KiB));
  EXPECT_THAT(timeline.reserved, ElementsAre(30_MiB, 32_MiB, 32_MiB, 32_MiB));
  EXPECT_EQ(timeline.peak, 1U);
  ASSERT_EQ(timeline.tensors.size(), 3U);
  EXPECT_EQ(timeline.tensors[0].born, 0U);
  EXPECT_EQ(timeline.tensors[0].died, 2U);
  EXPECT_EQ(timeline.tensors[1].died, timeline.instants()) << "it lives to the end";
  EXPECT_EQ(timeline.tensors[1].block, 1_KiB);
}

TEST(Timeline, AddsUpAtEveryInstantWholeAndThinned) {
  const auto trace = trace_of(random_events(4000), kRequests);
  const Timeline whole = timeline_of(*trace);
  const Timeline thin = thinned(whole, {.instants = 500});
  EXPECT_LE(thin.instants(), 500U);
  EXPECT_EQ(thin.tensors.size() + thin.left_out, whole.tensors.size());
  for (const Timeline* timeline : {&whole, &thin})
    for (Instant i = 0; i < timeline->instants(); i += 7)
      ASSERT_EQ(sum_of_blocks(*timeline, i), timeline->allocated[i]) << "instant " << i;
}

TEST(Timeline, KeepsThePeaksWhenItIsThinned) {
  const auto trace = trace_of(random_events(4000), kRequests);
  const Timeline whole = timeline_of(*trace);
  for (const Instant most : {2000U, 300U, 5U, 1U}) {
    const Timeline thin = thinned(whole, {.instants = most});
    EXPECT_EQ(thin.allocated[thin.peak], whole.allocated[whole.peak]);
    EXPECT_EQ(thin.reserved[thin.reserved_peak], whole.reserved[whole.reserved_peak]);
    EXPECT_EQ(thin.event_numbers[thin.peak], whole.event_numbers[whole.peak]);
    EXPECT_EQ(*std::max_element(thin.allocated.begin(), thin.allocated.end()),
              whole.allocated[whole.peak]);
  }
}

TEST(Timeline, KeepsItsSumsWhenTensorsAreMerged) {
  const auto trace = trace_of(random_events(4000), kRequests);
  const Timeline whole = timeline_of(*trace);
  const Timeline merged = thinned(whole, {.instants = 100, .merges = true});
  EXPECT_GT(merged.merged, 0U);
  EXPECT_EQ(merged.tensors.size() + merged.left_out + merged.merged, whole.tensors.size());
  for (Instant i = 0; i < merged.instants(); ++i)
    ASSERT_EQ(sum_of_blocks(merged, i), merged.allocated[i]) << "instant " << i;
}

TEST(Timeline, TellsPhasesAndStepsAsRuns) {
  const auto trace =
      trace_of({in(alloc(1, 1_MiB), Phase::init, 0), in(alloc(2, 2_MiB), Phase::forward, 1),
                in(alloc(3, 3_MiB), Phase::forward, 1), in(free_requested(3), Phase::backward, 1),
                in(alloc(4, 9_MiB), Phase::forward, 2)});
  const Timeline timeline = timeline_of(*trace);
  EXPECT_THAT(timeline.phases, ElementsAre(Pair(0U, Phase::init), Pair(1U, Phase::forward),
                                           Pair(3U, Phase::backward), Pair(4U, Phase::forward)));
  EXPECT_THAT(timeline.steps, ElementsAre(Pair(0U, 0U), Pair(1U, 1U), Pair(4U, 2U)));
  EXPECT_EQ(phase_at(timeline, 2), Phase::forward);
  EXPECT_EQ(peak_of_step(timeline, 1), 2U);
  EXPECT_EQ(peak_of_step(timeline, 5), std::nullopt);
}

// The segments are rebuilt from events; the allocator's own account at the same moment is the
// judge.
class SegmentsAtEvent final : public Follower {
 public:
  explicit SegmentsAtEvent(std::uint64_t number) : number_(number) {}
  void before(const Event&, std::uint64_t number) override { is_it_ = number == number_; }
  void after(const Event&, const allocator::CachingAllocator& card) override {
    if (is_it_) found = card.snapshot();
  }
  std::vector<allocator::SegmentInfo> found;

 private:
  std::uint64_t number_;
  bool is_it_ = false;
};

TEST(Timeline, HasTheAllocatorsSegmentsAtThePeak) {
  for (const char* settings : {"", "expandable_segments:True", "max_split_size_mb:20"}) {
    const ReplayOptions options{.setup = {.settings = settings}};
    const auto trace = trace_of(random_events(3000), kRequests);
    const Timeline timeline = timeline_of(*trace, options);
    SegmentsAtEvent judge(timeline.event_numbers[timeline.peak]);
    const auto again = trace_of(random_events(3000), kRequests);
    (void)replay(*again, {.setup = options.setup, .follower = &judge});
    ASSERT_EQ(timeline.segments_at_peak.size(), judge.found.size()) << settings;
    for (std::size_t i = 0; i < judge.found.size(); ++i) {
      EXPECT_EQ(timeline.segments_at_peak[i].address, judge.found[i].address);
      EXPECT_EQ(timeline.segments_at_peak[i].size, judge.found[i].size);
      ASSERT_EQ(timeline.segments_at_peak[i].blocks.size(), judge.found[i].blocks.size());
      for (std::size_t b = 0; b < judge.found[i].blocks.size(); ++b)
        EXPECT_EQ(timeline.segments_at_peak[i].blocks[b].size, judge.found[i].blocks[b].size);
    }
  }
}

TEST(Timeline, MarksWhatWasRefusedThenAndNow) {
  Event refused = event_of(Kind::oom);
  refused.bytes = 7_MiB;
  refused.address = 1 << 20;
  const auto trace = trace_of({alloc(1, 30_MiB), refused, alloc(2, 30_MiB)});
  const Timeline timeline = timeline_of(*trace, {.setup = {.capacity = 40_MiB}});
  ASSERT_EQ(timeline.refusals.size(), 2U);
  EXPECT_TRUE(timeline.refusals[0].recorded);
  EXPECT_EQ(timeline.refusals[0].free, 1_MiB);
  EXPECT_FALSE(timeline.refusals[1].recorded);
  EXPECT_EQ(timeline.refusals[1].asked, 30_MiB);
  EXPECT_EQ(timeline.refusals[1].free, 10_MiB);
}

TEST(Timeline, OfATraceWithoutMemoryIsEmpty) {
  const auto trace = trace_of({event_of(Kind::mark)});
  const Timeline timeline = timeline_of(*trace);
  EXPECT_EQ(timeline.instants(), 0U);
  EXPECT_TRUE(timeline.segments_at_peak.empty());
}

}  // namespace
}  // namespace headroom::page
