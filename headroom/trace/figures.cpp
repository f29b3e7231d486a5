#include "headroom/trace/figures.h"

#include <algorithm>

#include "headroom/trace/detail/fault.h"

namespace headroom::trace {
namespace {

// As much of `bytes` as may be added to `sum`.
Bytes within_limits(Bytes bytes, Bytes sum) {
  return std::min(bytes, std::max(Bytes{0}, Bytes{detail::kMostLiveBytes} - sum));
}

Bytes rounded(Bytes size) {
  constexpr std::int64_t kBlock = 512;
  return Bytes{(size.count + kBlock - 1) / kBlock * kBlock};
}

}  // namespace

void EventFigures::allocate(std::uint64_t address, Bytes bytes) {
  blocks_[address] = {.requested = bytes};
  requested_ += bytes;
  allocated_ += rounded(bytes);
  active_ += rounded(bytes);
}

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
  switch (event.kind) {
    case Kind::alloc:
      remove(event.address);  // its free was not recorded
      allocate(event.address, within_limits(event.bytes, active_));
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
      reserved_ += within_limits(event.bytes, reserved_);
      break;
    case Kind::segment_free:
    case Kind::segment_unmap:
      reserved_ -= std::min(event.bytes, reserved_);  // more: it was there before the recording
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
