// How full and how busy each card was in the last samples: a small ring a card.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "headroom/gpu/machine.h"

namespace headroom::cli {

// Memory that no new job can get: the processes' and the driver's own.
[[nodiscard]] inline Bytes taken_of(const gpu::CardMemory& memory) {
  return memory.total - memory.free;
}

class History {
 public:
  static constexpr int kSamples = 180;

  // A card without fresh data, or without the figure, has a gap.
  void add(const gpu::Machine& machine, Clock::time_point now);

  // The last samples in `cells` groups of equal size, oldest first: the highest percentage of each.
  // A group keeps its samples while time goes on, so that a graph moves and does not flicker.
  using Levels = std::vector<std::optional<int>>;
  [[nodiscard]] Levels memory(const gpu::Uuid& card, int cells) const;
  [[nodiscard]] Levels load(const gpu::Uuid& card, int cells) const;

 private:
  static constexpr std::uint8_t kUnknown = 255;
  using Ring = std::array<std::uint8_t, kSamples>;
  struct Track {
    Ring memory, load;
  };
  [[nodiscard]] Levels levels(const Ring& ring, int cells) const;

  std::map<gpu::Uuid, Track> tracks_;
  long long count_ = 0;  // of samples since the beginning
};

}  // namespace headroom::cli
