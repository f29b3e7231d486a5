#include "headroom/allocator/detail/driver.h"

#include <iterator>

namespace headroom::allocator::detail {

bool Driver::take_memory(std::int64_t bytes) {
  if (bytes > free()) return false;
  used_ += bytes;
  return true;
}

std::optional<std::uint64_t> Driver::take_segment(std::int64_t bytes) {
  if (!take_memory(bytes)) return {};
  return address_for(bytes);
}

std::uint64_t Driver::address_for(std::int64_t bytes) {
  const auto size = static_cast<std::uint64_t>(bytes);
  if (policy_ == AddressPolicy::descending) return next_down_ -= size;
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    const auto [address, room] = *gap;
    gaps_.erase(gap);
    if (room > bytes) gaps_.emplace(address + size, room - bytes);
    return address;
  }
  const std::uint64_t address = next_up_;
  next_up_ += size;
  return address;
}

void Driver::give_segment(std::uint64_t address, std::int64_t bytes) {
  give_memory(bytes);
  if (policy_ != AddressPolicy::lowest) return;
  const auto end_of = [](auto gap) { return gap->first + static_cast<std::uint64_t>(gap->second); };
  auto gap = gaps_.emplace(address, bytes).first;
  const auto after = std::next(gap);
  if (after != gaps_.end() && end_of(gap) == after->first) {
    gap->second += after->second;
    gaps_.erase(after);
  }
  if (gap != gaps_.begin()) {
    const auto before = std::prev(gap);
    if (end_of(before) == gap->first) {
      before->second += gap->second;
      gaps_.erase(gap);
      gap = before;
    }
  }
  if (end_of(gap) == next_up_) {  // merge with the endless gap above all segments
    next_up_ = gap->first;
    gaps_.erase(gap);
  }
}

std::uint64_t Driver::take_range(std::int64_t bytes) {
  const std::uint64_t address = next_range_;
  next_range_ += static_cast<std::uint64_t>(bytes);
  return address;
}

}  // namespace headroom::allocator::detail
