// The peak memory of each module, its children included: memory of "a.b.c" also counts for "a.b",
// "a" and "", the whole step.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "headroom/trace/report.h"

namespace headroom::dryrun::detail {

class ModulePeaks {
 public:
  // The names must outlive this object.
  explicit ModulePeaks(const trace::Names& names) : names_(names) {}

  // Call both in the order of the events.
  void take(trace::Name module, Bytes bytes);
  void give_back(trace::Name module, Bytes bytes);

  [[nodiscard]] std::vector<trace::ModulePeak> largest_first() const;

 private:
  // The positions of the module and its parents.
  [[nodiscard]] const std::vector<std::size_t>& with_parents(trace::Name module);
  [[nodiscard]] std::size_t position_of(const std::string& path);

  const trace::Names& names_;
  std::unordered_map<trace::Name, std::vector<std::size_t>> known_;
  std::unordered_map<std::string, std::size_t> positions_;
  std::vector<trace::ModulePeak> peaks_;  // by position
  std::vector<Bytes> now_;                // by position
};

}  // namespace headroom::dryrun::detail
