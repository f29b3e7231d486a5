// The allocator's segments at one instant, rebuilt from the events about segments and the tensors
// that live then. Memory freed but still in use by another stream appears as free.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::page {
struct TensorLife;
}

namespace headroom::page::detail {

class SegmentBuilder {
 public:
  // Takes segment_alloc, segment_free, segment_map and segment_unmap, in order.
  void add(std::uint32_t instant, const allocator::AllocatorEvent& event) {
    events_.emplace_back(instant, event);
  }

  // Sorted by address, with their blocks.
  [[nodiscard]] std::vector<allocator::SegmentInfo> at(std::uint32_t instant,
                                                       std::span<const TensorLife> tensors,
                                                       std::span<const std::uint32_t> living) const;

 private:
  std::vector<std::pair<std::uint32_t, allocator::AllocatorEvent>> events_;
};

}  // namespace headroom::page::detail
