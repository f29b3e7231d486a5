#include "headroom/trace/detail/thinned_track.h"

#include <algorithm>

namespace headroom::trace::detail {

void ThinnedTrack::add(const Sample& sample) {
  if (!stretches_.empty() && stretches_.back().last.value == sample.value) return;
  if (stretches_.empty() || stretches_.back().samples == longest_) {
    stretches_.push_back({sample, sample, sample, sample});
    return;
  }
  Stretch& stretch = stretches_.back();
  if (sample.value < stretch.lowest.value) stretch.lowest = sample;
  if (sample.value > stretch.highest.value) stretch.highest = sample;
  stretch.last = sample;
  ++stretch.samples;
}

void ThinnedTrack::thin() {
  longest_ *= 2;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < stretches_.size(); i += 2) {
    Stretch merged = stretches_[i];
    if (i + 1 < stretches_.size()) {
      const Stretch& next = stretches_[i + 1];
      if (next.lowest.value < merged.lowest.value) merged.lowest = next.lowest;
      if (next.highest.value > merged.highest.value) merged.highest = next.highest;
      merged.last = next.last;
      merged.samples += next.samples;
    }
    stretches_[kept++] = merged;
  }
  stretches_.resize(kept);
}

std::size_t ThinnedTrack::size() const {
  return stretches_.size() * std::min<std::size_t>(longest_, 4);
}

}  // namespace headroom::trace::detail
