#include "headroom/memory/host_pool.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace headroom::memory {
namespace {

constexpr std::int64_t kPlace = 512;  // what a place's size is a multiple of
constexpr std::int64_t kSmallestPiece = std::int64_t{1} << 20;
constexpr std::int64_t kLargestPiece = std::int64_t{1} << 28;

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kPlace - 1) / kPlace * kPlace;
}

at::Tensor host_memory_of(std::int64_t bytes, bool locked) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(at::kCPU).pinned_memory(locked));
}

}  // namespace

std::shared_ptr<HostPool> HostPool::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<HostPool>& only = *new std::weak_ptr<HostPool>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<HostPool> pool = only.lock();
  if (!pool) only = pool = std::make_shared<HostPool>();
  return pool;
}

HostPool::Buffer::~Buffer() {
  if (pool_) pool_->give_back(*this);
}

void HostPool::Buffer::swap(Buffer& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(piece_, other.piece_);
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  std::swap(before_, other.before_);
  std::swap(until_, other.until_);
}

HostPool::Buffer HostPool::Buffer::of(at::Tensor bytes) {
  Buffer buffer;
  buffer.bytes_ = std::move(bytes);
  return buffer;
}

HostPool::Buffer HostPool::take(std::int64_t bytes, Lock lock) {
  Buffer buffer;
  if (lock == Lock::never) return Buffer::of(host_memory_of(bytes, false));
  const std::lock_guard guard(mutex_);
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (take_from(i, bytes, buffer)) return buffer;
  if (lock == Lock::new_pages && grow(bytes)) {
    take_from(pieces_.size() - 1, bytes, buffer);
    return buffer;
  }
  return Buffer::of(host_memory_of(bytes, false));
}

// The first gap that is large enough.
bool HostPool::take_from(std::size_t piece, std::int64_t bytes, Buffer& buffer) {
  const std::int64_t size = rounded(bytes);
  auto& gaps = pieces_[piece].gaps;
  const auto found = std::find_if(gaps.begin(), gaps.end(),
                                  [&](const auto& gap) { return gap.second.size >= size; });
  if (found == gaps.end()) return false;
  buffer.at_ = found->first;
  buffer.piece_ = piece;
  buffer.bytes_ = pieces_[piece].memory.narrow(0, found->first, bytes);
  auto gap = gaps.extract(found);
  buffer.before_ = gap.mapped().used_until;
  if (gap.mapped().size > size) {
    gap.key() += size;
    gap.mapped().size -= size;
    gaps.insert(std::move(gap));
  }
  buffer.pool_ = shared_from_this();
  given_ += Bytes{size};
  return true;
}

// False if the system gives no more page-locked memory.
bool HostPool::grow(std::int64_t at_least) {
  const std::int64_t size =
      std::max(rounded(at_least), std::clamp(held_.count, kSmallestPiece, kLargestPiece));
  try {
    pieces_.push_back({.memory = host_memory_of(size, true), .gaps = {}});
  } catch (const std::exception&) {
    return false;
  }
  pieces_.back().gaps[0].size = size;
  held_ += Bytes{size};
  return true;
}

void HostPool::warm(Bytes enough) {
  const std::lock_guard lock(mutex_);
  while (held_ < enough)
    if (!grow(std::min((enough - held_).count, kLargestPiece))) return;
}

Bytes HostPool::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

// Joins gaps that touch, unless work on one of them may still run.
void HostPool::give_back(Buffer& buffer) {
  const std::lock_guard lock(mutex_);
  auto& gaps = pieces_[buffer.piece_].gaps;
  const std::int64_t size = rounded(buffer.bytes_.numel());
  given_ -= Bytes{size};
  const auto is_idle = [](const Gap& gap) { return !gap.used_until || gap.used_until->query(); };
  auto here =
      gaps.emplace(buffer.at_, Gap{.size = size, .used_until = std::move(buffer.until_)}).first;
  const auto join = [&](auto left, auto right) {
    if (left->first + left->second.size != right->first || !is_idle(left->second) ||
        !is_idle(right->second))
      return left;
    left->second = {.size = left->second.size + right->second.size, .used_until = {}};
    gaps.erase(right);
    return left;
  };
  if (const auto after = std::next(here); after != gaps.end()) join(here, after);
  if (here != gaps.begin()) join(std::prev(here), here);
}

}  // namespace headroom::memory
