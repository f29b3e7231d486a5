#include "headroom/train/detail/neighbour_watch.h"

namespace headroom::train::detail {

NeighbourWatch::Care NeighbourWatch::look(const memory::GpuMemoryStats& now) {
  if (!now.free || !now.total) return Care::none;
  const auto share = [&](Bytes bytes) {
    return static_cast<double>(bytes.count) / static_cast<double>(now.total->count);
  };
  if (share(*now.total - *now.free) <= above_) return Care::none;
  const Bytes others = *now.total - *now.free - now.reserved;
  const bool is_new = !then_ || share(others - *then_) > 0.01;
  then_ = others;
  if (!is_new || share(others) < 0.01) return Care::none;
  return share(now.reserved - now.allocated) < 0.05 ? Care::shrink : Care::trim;
}

}  // namespace headroom::train::detail
