// The tensors that were live at the peak, whatever came before and after it.
#include "headroom/trace/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "headroom/base/error.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint64_t> addresses(const Top& top) {
  std::vector<std::uint64_t> all;
  for (const Tensor& tensor : top.tensors) all.push_back(tensor.address);
  return all;
}

// 1: 10, 2: 30, 3: 40 MiB live at once, then all change.
std::vector<Event> rise_and_fall() {
  return {alloc(1, 10_MiB), alloc(9, 5_MiB),   free_requested(9),
          alloc(2, 30_MiB), alloc(3, 40_MiB),  free_requested(3),
          alloc(4, 20_MiB), free_requested(1), alloc(1, 11_MiB)};
}

TEST(Top, ListsTheTensorsLiveAtThePeakBiggestFirst) {
  const auto trace = trace_of(rise_and_fall());
  const Top top = top_of(*trace);
  EXPECT_EQ(top.event, 4U);
  EXPECT_EQ(top.live, 80_MiB);
  EXPECT_THAT(addresses(top), ElementsAre(3, 2, 1));
  EXPECT_EQ(top.tensors[2].bytes, 10_MiB) << "not the block that has its address now";
}

TEST(Top, CanLookAtTheEndAndAtAnyEvent) {
  const auto trace = trace_of(rise_and_fall());
  EXPECT_THAT(addresses(top_of(*trace, {.at = TopOptions::At::end})), ElementsAre(2, 4, 1));
  const auto again = trace_of(rise_and_fall());
  const Top early = top_of(*again, {.at = TopOptions::At::event, .event = 1});
  EXPECT_THAT(addresses(early), ElementsAre(1, 9));
  EXPECT_EQ(early.noticed.events, 2U);
  const auto third = trace_of(rise_and_fall());
  EXPECT_THROW((void)top_of(*third, {.at = TopOptions::At::event, .event = 9}), UsageError);
}

// Against a plain account that remembers everything, at every new peak.
TEST(Top, EqualsAnAccountThatCopiesAtEachPeak) {
  std::uint64_t seed = 1;
  const auto random = [&seed](std::uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
  };
  std::vector<Event> events;
  std::map<std::uint64_t, Bytes> live, at_peak;
  Bytes now, peak;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t address = random(40);
    if (const auto found = live.find(address); found != live.end()) {
      events.push_back(free_requested(address));
      now -= found->second;
      live.erase(found);
    } else {
      const Bytes bytes{static_cast<std::int64_t>(1 + random(1000))};
      events.push_back(alloc(address, bytes));
      live[address] = bytes;
      now += bytes;
    }
    if (now > peak) peak = now, at_peak = live;
  }
  const auto trace = trace_of(events);
  const Top top = top_of(*trace);
  std::map<std::uint64_t, Bytes> found;
  for (const Tensor& tensor : top.tensors) found[tensor.address] = tensor.bytes;
  EXPECT_EQ(top.live, peak);
  EXPECT_EQ(found, at_peak);
}

TEST(Top, LooksAtOneDeviceAndCountsUnknownFrees) {
  const auto trace = trace_of({alloc(1, 1_MiB), on_device(1, alloc(1, 9_MiB)), free_requested(77)});
  const Top top = top_of(*trace);
  EXPECT_EQ(top.live, 1_MiB);
  EXPECT_EQ(top.noticed.unknown_frees, 1U);
  const auto again = trace_of({alloc(1, 1_MiB)});
  EXPECT_THROW((void)top_of(*again, {.device = 4}), UsageError);
}

// Three times the largest size there is made a negative sum, and the first of them the peak.
TEST(Top, AddsUpHugeSizesWithoutOverflow) {
  const Bytes most{std::numeric_limits<std::int64_t>::max()};
  const auto trace = trace_of({alloc(1, most), alloc(2, most), free_requested(1), alloc(3, most)});
  const Top top = top_of(*trace, {.at = TopOptions::At::end});
  EXPECT_EQ(top.live, Bytes{std::int64_t{1} << 62});
  EXPECT_THAT(addresses(top), ElementsAre(3));
}

TEST(Top, IsEmptyForAnEmptyTrace) {
  const auto trace = trace_of({});
  EXPECT_THAT(top_of(*trace).tensors, IsEmpty());
}

TEST(Shares, AddUpByModuleToADepth) {
  std::vector<Event> events{alloc(1, 1_MiB), alloc(2, 2_MiB), alloc(3, 4_MiB), alloc(4, 8_MiB)};
  Names names;
  events[0].module = names.number("h.0.attn");
  events[1].module = names.number("h.0.mlp");
  events[2].module = names.number("h.1");
  for (Event& event : events) event.category = Category::activation;
  const auto trace = trace_of(events, {.format = Format::pickle}, names);
  const Top top = top_of(*trace);
  const auto text = [&](Grouping grouping, int depth) {
    std::vector<std::string> lines;
    for (const Share& share : shares(top, grouping, depth))
      lines.push_back(share.name + "=" + std::to_string(share.bytes.count >> 20) + "/" +
                      std::to_string(share.tensors));
    return lines;
  };
  EXPECT_THAT(text(Grouping::module, 2), ElementsAre("=8/1", "h.1=4/1", "h.0=3/2"));
  EXPECT_THAT(text(Grouping::module, 1), ElementsAre("=8/1", "h=7/3"));
  EXPECT_THAT(text(Grouping::module, 0),
              ElementsAre("=8/1", "h.1=4/1", "h.0.mlp=2/1", "h.0.attn=1/1"));
  EXPECT_THAT(text(Grouping::category, 0), ElementsAre("activation=15/4"));
}

}  // namespace
}  // namespace headroom::trace
