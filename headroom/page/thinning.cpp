#include "headroom/page/thinning.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

namespace headroom::page {
namespace {

// The instants of a stretch that stay.
void keep(std::vector<Instant>& kept, const Timeline& timeline, Instant begin, Instant end) {
  std::array<Instant, 5> found{begin, begin, begin, begin, end - 1};
  for (Instant i = begin; i < end; ++i) {
    if (timeline.allocated[i] < timeline.allocated[found[1]]) found[1] = i;
    if (timeline.allocated[i] > timeline.allocated[found[2]]) found[2] = i;
    if (timeline.reserved[i] > timeline.reserved[found[3]]) found[3] = i;
  }
  std::sort(found.begin(), found.end());
  kept.insert(kept.end(), found.begin(), std::unique(found.begin(), found.end()));
}

std::vector<Instant> instants_to_keep(const Timeline& timeline, Instant most) {
  const Instant stretches = std::max<Instant>(most / 5, 1);
  const Instant all = timeline.instants();
  std::vector<Instant> kept;
  for (Instant i = 0; i < stretches; ++i) {
    const auto at = [&](Instant n) {
      return static_cast<Instant>(std::uint64_t{all} * n / stretches);
    };
    if (at(i) < at(i + 1)) keep(kept, timeline, at(i), at(i + 1));
  }
  for (std::size_t i = 0; i < std::min(timeline.refusals.size(), kRefusalsKept); ++i)
    kept.push_back(timeline.refusals[i].instant);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

class Thinner {
 public:
  Thinner(const Timeline& from, std::vector<Instant> kept) : from_(from), kept_(std::move(kept)) {}

  Timeline thinned(bool merges) {
    take_facts();
    for (const TensorLife& tensor : from_.tensors) take(tensor, merges);
    thin_.event_numbers = picked(from_.event_numbers);
    thin_.times_ns = picked(from_.times_ns);
    thin_.allocated = picked(from_.allocated);
    thin_.reserved = picked(from_.reserved);
    thin_.peak = at(from_.peak);
    thin_.reserved_peak = at(from_.reserved_peak);
    thin_.phases = runs(from_.phases);
    thin_.steps = runs(from_.steps);
    for (const auto& [instant, text] : from_.marks) thin_.marks.emplace_back(at(instant), text);
    for (Refusal refusal : from_.refusals) {
      refusal.instant = at(refusal.instant);
      thin_.refusals.push_back(refusal);
    }
    if (!merges) thin_.segments_at_peak = from_.segments_at_peak;
    return std::move(thin_);
  }

 private:
  void take_facts() {
    thin_.about = from_.about;
    thin_.names = from_.names;
    thin_.device = from_.device;
    thin_.events = from_.events;
    thin_.left_out = from_.left_out;
    thin_.is_thinned = true;
    thin_.card = from_.card;
    thin_.noticed = from_.noticed;
  }

  // The first kept instant that is not before this one; the last for those behind it.
  [[nodiscard]] Instant at(Instant instant) const {
    const auto found = std::lower_bound(kept_.begin(), kept_.end(), instant);
    return static_cast<Instant>(std::min(found, kept_.end() - 1) - kept_.begin());
  }

  void take(TensorLife tensor, bool merges) {
    const auto end = static_cast<Instant>(kept_.size());
    tensor.born = at(tensor.born);
    tensor.died = tensor.died == from_.instants() ? end : at(tensor.died);
    if (tensor.born >= tensor.died) {
      ++thin_.left_out;
      return;
    }
    tensor.origin = origin(tensor.origin);
    if (merges && joins_another(tensor)) return;
    thin_.tensors.push_back(tensor);
  }

  bool joins_another(const TensorLife& tensor) {
    const auto [found, is_new] = merged_.try_emplace(
        std::tuple(tensor.born, tensor.died, tensor.origin), thin_.tensors.size());
    if (is_new) return false;
    TensorLife& other = thin_.tensors[found->second];
    other.bytes += tensor.bytes;
    other.block += tensor.block;
    ++thin_.merged;
    return true;
  }

  // Only the origins that are still used stay.
  std::uint32_t origin(std::uint32_t before) {
    const auto [found, is_new] =
        origins_.try_emplace(before, static_cast<std::uint32_t>(thin_.origins.size()));
    if (is_new) thin_.origins.push_back(from_.origins[before]);
    return found->second;
  }

  template <typename Value>
  [[nodiscard]] std::vector<Value> picked(const std::vector<Value>& all) const {
    std::vector<Value> some;
    some.reserve(kept_.size());
    for (const Instant instant : kept_) some.push_back(all[instant]);
    return some;
  }

  template <typename Value>
  [[nodiscard]] std::vector<std::pair<Instant, Value>> runs(
      const std::vector<std::pair<Instant, Value>>& all) const {
    std::vector<std::pair<Instant, Value>> some;
    for (const auto& [instant, value] : all) {
      if (instant > kept_.back()) break;
      if (!some.empty() && some.back().first == at(instant)) some.pop_back();
      some.emplace_back(at(instant), value);
    }
    return some;
  }

  const Timeline& from_;
  const std::vector<Instant> kept_;
  Timeline thin_;
  std::unordered_map<std::uint32_t, std::uint32_t> origins_;
  std::map<std::tuple<Instant, Instant, std::uint32_t>, std::size_t> merged_;
};

}  // namespace

Timeline thinned(const Timeline& timeline, const Thinning& thinning) {
  if (timeline.instants() == 0) return timeline;
  return Thinner(timeline, instants_to_keep(timeline, thinning.instants)).thinned(thinning.merges);
}

}  // namespace headroom::page
