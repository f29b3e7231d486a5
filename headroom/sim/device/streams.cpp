#include "headroom/sim/device/streams.h"

#include <array>
#include <atomic>
#include <utility>

#include "headroom/sim/device/cards.h"

namespace headroom::sim::detail {
namespace {

// 1 to 32 are the pool of normal priority, 33 to 64 that of high priority; new streams follow.
constexpr c10::StreamId kPooled = 32;
thread_local std::array<c10::StreamId, kMostCards> current{};
std::array<std::atomic<c10::StreamId>, kMostCards> next_new{};
std::array<std::array<std::atomic<c10::StreamId>, 2>, kMostCards> next_pooled{};

}  // namespace

c10::StreamId current_stream(int card) noexcept {
  return current[static_cast<std::size_t>(card)];
}

c10::StreamId exchange_current_stream(int card, c10::StreamId stream) noexcept {
  return std::exchange(current[static_cast<std::size_t>(card)], stream);
}

c10::StreamId new_stream(int card) {
  return 2 * kPooled + 1 + next_new[static_cast<std::size_t>(card)].fetch_add(1);
}

c10::StreamId pooled_stream(int card, bool high_priority) {
  auto& next = next_pooled[static_cast<std::size_t>(card)][high_priority ? 1 : 0];
  return 1 + (high_priority ? kPooled : 0) + next.fetch_add(1) % kPooled;
}

}  // namespace headroom::sim::detail
