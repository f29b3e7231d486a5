// What a card's events say of it, mistakes and nonsense of the file included.
#include "headroom/trace/figures.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/trace/event_list.h"

namespace headroom::testing {
namespace {

using namespace headroom::literals;
using namespace headroom::trace;

Figures figures_after(const std::vector<Event>& events) {
  EventFigures device;
  for (const Event& event : events) device.see(event);
  return device.figures();
}

TEST(EventFigures, CountAnAddressOnceThatIsGivenAgain) {
  EXPECT_EQ(figures_after({alloc(1, 600_B), alloc(1, 100_B)}).allocated, 512_B);
}

TEST(EventFigures, AddUpSizesThatAreNonsenseWithoutOverflow) {
  const Bytes most{std::numeric_limits<std::int64_t>::max()};
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < 10; ++i) {
    events.push_back(alloc(i, most));
    events.push_back(event_of(Kind::segment_map, i, most));
  }
  const Figures full = figures_after(events);
  EXPECT_EQ(full.reserved, Bytes{std::int64_t{1} << 62});
  EXPECT_EQ(full.allocated, Bytes{std::int64_t{1} << 62});
  for (std::uint64_t i = 0; i < 10; ++i) events.push_back(free_requested(i));
  for (std::uint64_t i = 0; i < 10; ++i) events.push_back(event_of(Kind::segment_unmap, i, most));
  EXPECT_EQ(figures_after(events).reserved, 0_B);
  EXPECT_EQ(figures_after(events).allocated, 0_B);
}

}  // namespace
}  // namespace headroom::testing
