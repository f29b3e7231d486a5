// The effect of the driver's choice of addresses. The allocator takes the smallest free block that
// is large enough and, among equal sizes, the one at the lowest address. So without equal sizes
// addresses decide nothing, and with them they decide little. docs/guides/what-if.md shows the
// output of this test.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "headroom/trace/what_if.h"
#include "tests/trace/written_events.h"

namespace headroom::trace {
namespace {

using namespace headroom::literals;
using namespace headroom::trace::testing;
using allocator::AddressPolicy;

struct Random {
  std::uint64_t state;
  std::uint64_t below(std::uint64_t limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % limit;
  }
};

// Half allocations, half frees, with some 30 blocks alive; `size` says how large the nth is.
template <typename Size>
std::vector<Event> stream_of(Random& random, int events, const Size& size) {
  std::vector<Event> all;
  std::vector<std::uint64_t> live;
  for (std::uint64_t next = 1; static_cast<int>(all.size()) < events;) {
    if (live.size() > 30 || (!live.empty() && random.below(2) == 0)) {
      std::swap(live[random.below(live.size())], live.back());
      all.push_back(free_requested(live.back()));
      live.pop_back();
    } else {
      all.push_back(alloc(next, size(next)));
      live.push_back(next++);
    }
  }
  return all;
}

std::vector<CardReplay> under_each_policy(const std::vector<Event>& events,
                                          const CardSetup& setup) {
  std::vector<CardSetup> setups(3, setup);
  setups[1].addresses = AddressPolicy::descending;
  setups[2].addresses = AddressPolicy::lowest;
  const auto trace = trace_of(events, {.format = Format::plain});
  return what_if(*trace, setups).cards;
}

// Each size once, all above 20 MiB, each in a segment of another size.
TEST(AddressPolicy, DecidesNothingWithoutEqualSizes) {
  Random random{7};
  for (int stream = 0; stream < 50; ++stream) {
    std::vector<int> order(200);
    std::iota(order.begin(), order.end(), 11);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    const auto events = stream_of(random, 390, [&](std::uint64_t n) {
      const auto odd = static_cast<std::int64_t>(random.below(2'000'000));
      return 2_MiB * order[n % order.size()] + Bytes{odd};
    });
    const auto cards = under_each_policy(events, {.capacity = 5_GiB});
    EXPECT_EQ(cards[1].statistics, cards[0].statistics) << "descending, stream " << stream;
    EXPECT_EQ(cards[2].statistics, cards[0].statistics) << "lowest, stream " << stream;
  }
}

// The sizes of a training step come again and again; the card is nearly full.
TEST(AddressPolicy, DecidesLittleWithEqualSizes) {
  Random random{11};
  constexpr int kStreams = 300;
  int different[3] = {}, refusals[3] = {};
  double largest[3] = {};
  for (int stream = 0; stream < kStreams; ++stream) {
    std::vector<Bytes> sizes;
    for (int i = 0; i < 6; ++i)
      sizes.push_back(Bytes{static_cast<std::int64_t>(512 + random.below(24 << 20))});
    const auto events =
        stream_of(random, 600, [&](std::uint64_t) { return sizes[random.below(sizes.size())]; });
    const auto trace = trace_of(events, {.format = Format::plain});
    const Bytes peak = replay(*trace).card.reserved_peak.peak;
    // Since 2.12 addresses decide even less.
    const auto cards = under_each_policy(
        events, {.capacity = peak * 9 / 10, .version = allocator::version_named("2.11")});
    for (int policy : {1, 2}) {
      const CardReplay &a = cards[0], &b = cards[static_cast<std::size_t>(policy)];
      different[policy] += a.statistics != b.statistics;
      refusals[policy] += a.refused != b.refused;
      largest[policy] = std::max(largest[policy],
                                 std::abs(ratio(b.reserved_peak.peak, a.reserved_peak.peak) - 1));
    }
  }
  for (int policy : {1, 2}) {
    std::printf(
        "%-10s  some figure differs: %4.1f %%  refusals differ: %4.1f %%  "
        "reserved peak differs by at most %.1f %%\n",
        policy == 1 ? "descending" : "lowest", 100.0 * different[policy] / kStreams,
        100.0 * refusals[policy] / kStreams, 100 * largest[policy]);
    EXPECT_GT(different[policy], 0) << "the streams have no ties: they show nothing";
    EXPECT_LT(largest[policy], 0.2);
  }
}

}  // namespace
}  // namespace headroom::trace
