#include "headroom/trace/figures.h"

#include <algorithm>

namespace headroom::trace {
namespace {

// Sums of what a file says; a hostile one must not make them overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

Bytes rounded(Bytes size) {
  constexpr std::int64_t kBlock = 512;
  return Bytes{(size.count + kBlock - 1) / kBlock * kBlock};
}

}  // namespace

void EventFigures::remove(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  const Block& block = found->second;
  active_ -= rounded(block.requested);
  if (!block.waiting) {
    allocated_ -= rounded(block.requested);
    requested_ -= block.requested;
  }
  blocks_.erase(found);
}

void EventFigures::see(const Event& event) {
  const Bytes bytes = std::min(event.bytes, Bytes{kMostBytes});
  switch (event.kind) {
    case Kind::alloc:
      remove(event.address);  // its free was not recorded
      blocks_[event.address] = {.requested = bytes};
      requested_ += bytes;
      allocated_ += rounded(bytes);
      active_ += rounded(bytes);
      break;
    case Kind::free_requested:
      if (const auto found = blocks_.find(event.address);
          found != blocks_.end() && !found->second.waiting) {
        found->second.waiting = true;
        requested_ -= found->second.requested;
        allocated_ -= rounded(found->second.requested);
      }
      break;
    case Kind::free_completed:
      has_completions_ = true;
      remove(event.address);
      break;
    case Kind::segment_alloc:
    case Kind::segment_map:
      has_segments_ = true;
      reserved_ += bytes;
      break;
    case Kind::segment_free:
    case Kind::segment_unmap:
      reserved_ -= bytes;
      break;
    default:
      break;
  }
}

Figures EventFigures::figures() const {
  Figures figures;
  figures.allocated = allocated_;
  figures.requested = requested_;
  if (has_completions_) figures.active = active_;
  if (has_segments_) figures.reserved = reserved_;
  return figures;
}

}  // namespace headroom::trace
