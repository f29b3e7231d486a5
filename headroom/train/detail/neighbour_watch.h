// Watches a card between steps for memory that others have taken since the last look.
#pragma once

#include <optional>

#include "headroom/memory/memory_statistics.h"

namespace headroom::train::detail {

class NeighbourWatch {
 public:
  // `above`: the share of the card from which its use is an emergency, by whomever.
  explicit NeighbourWatch(double above) : above_(above) {}

  // trim: the cache is worth giving back; shrink: it is not. Memory that only this run has taken is
  // its plan's, and giving that back at each look would cost time.
  enum class Care { none, trim, shrink };
  [[nodiscard]] Care look(const memory::GpuMemoryStats& now);

 private:
  double above_;
  std::optional<Bytes> then_;  // held by others at the last emergency
};

}  // namespace headroom::train::detail
