#include "headroom/cli/core/top/history.h"

#include <algorithm>
#include <cmath>

namespace headroom::cli {
namespace {

std::optional<int> share_in_use(const gpu::Card& card) {
  if (!card.memory || card.memory->total <= Bytes{0}) return {};
  return static_cast<int>(std::lround(100 * ratio(taken_of(*card.memory), card.memory->total)));
}

}  // namespace

void History::add(const gpu::Machine& machine, Clock::time_point now) {
  const auto at = static_cast<std::size_t>(count_ % kSamples);
  for (auto& [card, track] : tracks_) track.memory[at] = track.load[at] = kUnknown;
  const auto kept = [&](const gpu::Card& card, std::optional<int> percent) {
    if (!percent || !is_fresh(card, now)) return kUnknown;
    return static_cast<std::uint8_t>(std::clamp(*percent, 0, 100));
  };
  for (const gpu::Card& card : machine.cards) {
    auto [found, is_new] = tracks_.try_emplace(card.uuid);
    Track& track = found->second;
    if (is_new) track.memory.fill(kUnknown), track.load.fill(kUnknown);
    track.memory[at] = kept(card, share_in_use(card));
    track.load[at] = kept(card, card.utilization);
  }
  ++count_;
}

History::Levels History::levels(const Ring& ring, int cells) const {
  const int size = std::max(1, (kSamples + cells - 1) / cells);
  // The newest group is the one that sample count_ - 1 belongs to.
  const long long newest = (count_ - 1) / size;
  Levels levels(static_cast<std::size_t>(cells));
  for (long long i = std::max<long long>(0, count_ - kSamples); i < count_; ++i) {
    const long long cell = cells - 1 - (newest - i / size);
    const std::uint8_t value = ring[static_cast<std::size_t>(i % kSamples)];
    if (cell < 0 || value == kUnknown) continue;
    auto& level = levels[static_cast<std::size_t>(cell)];
    level = std::max(level.value_or(0), static_cast<int>(value));
  }
  return levels;
}

History::Levels History::memory(const gpu::Uuid& card, int cells) const {
  const auto found = tracks_.find(card);
  if (found == tracks_.end()) return Levels(static_cast<std::size_t>(cells));
  return levels(found->second.memory, cells);
}

History::Levels History::load(const gpu::Uuid& card, int cells) const {
  const auto found = tracks_.find(card);
  if (found == tracks_.end()) return Levels(static_cast<std::size_t>(cells));
  return levels(found->second.load, cells);
}

}  // namespace headroom::cli
