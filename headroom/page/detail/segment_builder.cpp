#include "headroom/page/detail/segment_builder.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "headroom/page/timeline.h"

namespace headroom::page::detail {
namespace {

using allocator::AllocatorEvent;
using allocator::BlockInfo;
using allocator::SegmentInfo;
using Segments = std::map<std::uint64_t, SegmentInfo>;  // by address

std::uint64_t end_of(const SegmentInfo& segment) {
  return segment.address + static_cast<std::uint64_t>(segment.size.count);
}

SegmentInfo segment_of(const AllocatorEvent& event) {
  return {.address = event.address,
          .size = event.size,
          .stream = event.stream,
          .is_expandable = event.kind == AllocatorEvent::Kind::segment_map,
          .pool = event.pool,
          .blocks = {}};
}

// Adjacent mapped ranges are one stretch of an expandable segment.
void map(Segments& segments, const AllocatorEvent& event) {
  SegmentInfo mapped = segment_of(event);
  const auto belongs = [&](const SegmentInfo& other) {
    return other.is_expandable && other.stream == mapped.stream && other.pool == mapped.pool;
  };
  auto after = segments.lower_bound(mapped.address);
  if (after != segments.end() && after->first == end_of(mapped) && belongs(after->second)) {
    mapped.size += after->second.size;
    after = segments.erase(after);
  }
  if (after != segments.begin()) {
    SegmentInfo& before = std::prev(after)->second;
    if (end_of(before) == mapped.address && belongs(before)) {
      before.size += mapped.size;
      return;
    }
  }
  segments.emplace(mapped.address, mapped);
}

void unmap(Segments& segments, const AllocatorEvent& event) {
  auto found = segments.upper_bound(event.address);
  if (found == segments.begin()) return;
  const SegmentInfo whole = std::prev(found)->second;
  const std::uint64_t end = event.address + static_cast<std::uint64_t>(event.size.count);
  if (end > end_of(whole)) return;
  segments.erase(std::prev(found));
  const auto put_back = [&](std::uint64_t from, std::uint64_t to) {
    if (from == to) return;
    SegmentInfo rest = whole;
    rest.address = from;
    rest.size = Bytes{static_cast<std::int64_t>(to - from)};
    segments.emplace(from, rest);
  };
  put_back(whole.address, event.address);
  put_back(end, end_of(whole));
}

void apply(Segments& segments, const AllocatorEvent& event) {
  if (event.kind == AllocatorEvent::Kind::segment_alloc)
    segments.emplace(event.address, segment_of(event));
  if (event.kind == AllocatorEvent::Kind::segment_free) segments.erase(event.address);
  if (event.kind == AllocatorEvent::Kind::segment_map) map(segments, event);
  if (event.kind == AllocatorEvent::Kind::segment_unmap) unmap(segments, event);
}

void add_free(SegmentInfo& segment, std::uint64_t from, std::uint64_t to) {
  if (from < to)
    segment.blocks.push_back({.address = from,
                              .size = Bytes{static_cast<std::int64_t>(to - from)},
                              .requested = {},
                              .stream = segment.stream,
                              .state = BlockInfo::State::free});
}

}  // namespace

std::vector<SegmentInfo> SegmentBuilder::at(std::uint32_t instant,
                                            std::span<const TensorLife> tensors,
                                            std::span<const std::uint32_t> living) const {
  Segments segments;
  for (const auto& [when, event] : events_)
    if (when <= instant) apply(segments, event);
  std::vector<const TensorLife*> by_address;
  for (const std::uint32_t index : living) by_address.push_back(&tensors[index]);
  std::sort(by_address.begin(), by_address.end(),
            [](const TensorLife* a, const TensorLife* b) { return a->address < b->address; });
  std::vector<SegmentInfo> filled;
  auto tensor = by_address.begin();
  for (auto& [address, segment] : segments) {
    std::uint64_t at = address;
    for (; tensor != by_address.end() && (*tensor)->address < end_of(segment); ++tensor) {
      add_free(segment, at, (*tensor)->address);
      segment.blocks.push_back({.address = (*tensor)->address,
                                .size = (*tensor)->block,
                                .requested = (*tensor)->bytes,
                                .stream = segment.stream,
                                .state = BlockInfo::State::allocated});
      at = (*tensor)->address + static_cast<std::uint64_t>((*tensor)->block.count);
    }
    add_free(segment, at, end_of(segment));
    filled.push_back(std::move(segment));
  }
  return filled;
}

}  // namespace headroom::page::detail
