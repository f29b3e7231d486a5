#include "headroom/dryrun/detail/module_peaks.h"

#include <algorithm>

namespace headroom::dryrun::detail {

void ModulePeaks::take(trace::Name module, Bytes bytes) {
  for (const std::size_t position : with_parents(module)) {
    now_[position] += bytes;
    peaks_[position].peak = std::max(peaks_[position].peak, now_[position]);
  }
}

void ModulePeaks::give_back(trace::Name module, Bytes bytes) {
  for (const std::size_t position : with_parents(module)) now_[position] -= bytes;
}

std::vector<trace::ModulePeak> ModulePeaks::largest_first() const {
  std::vector<trace::ModulePeak> sorted = peaks_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const trace::ModulePeak& one, const trace::ModulePeak& other) {
                     return one.peak > other.peak;
                   });
  return sorted;
}

const std::vector<std::size_t>& ModulePeaks::with_parents(trace::Name module) {
  const auto [found, is_new] = known_.try_emplace(module);
  std::vector<std::size_t>& positions = found->second;
  if (!is_new) return positions;
  std::string path(names_.text(module));
  while (!path.empty()) {
    positions.push_back(position_of(path));
    const std::size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  positions.push_back(position_of(""));
  return positions;
}

std::size_t ModulePeaks::position_of(const std::string& path) {
  const auto [found, is_new] = positions_.try_emplace(path, peaks_.size());
  if (is_new) {
    peaks_.push_back({path, {}});
    now_.emplace_back();
  }
  return found->second;
}

}  // namespace headroom::dryrun::detail
