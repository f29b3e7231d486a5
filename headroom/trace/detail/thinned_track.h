// A figure over time in bounded memory: of each stretch of samples it keeps the first, the lowest,
// the highest and the last. thin() doubles the stretches, so that the number of samples need not be
// known in advance. Thinning never drops a peak.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::trace::detail {

struct Sample {
  std::int64_t time_ns = 0;
  std::int64_t value = 0;
  bool operator==(const Sample&) const = default;
};

class ThinnedTrack {
 public:
  // Ignores a value equal to the previous one.
  void add(const Sample& sample);
  // Makes stretches twice as long.
  void thin();
  // The largest number of samples that each() visits.
  [[nodiscard]] std::size_t size() const;

  template <typename Visit>
  void each(const Visit& visit) const {
    for (const Stretch& stretch : stretches_) {
      const bool low_first = stretch.lowest.time_ns <= stretch.highest.time_ns;
      const Sample* last = nullptr;
      for (const Sample* sample : {&stretch.first, low_first ? &stretch.lowest : &stretch.highest,
                                   low_first ? &stretch.highest : &stretch.lowest, &stretch.last}) {
        if (last != nullptr && *last == *sample) continue;
        visit(*sample);
        last = sample;
      }
    }
  }

 private:
  struct Stretch {
    Sample first, lowest, highest, last;
    std::size_t samples = 1;
  };

  std::vector<Stretch> stretches_;
  std::size_t longest_ = 1;  // largest number of samples in a stretch
};

}  // namespace headroom::trace::detail
