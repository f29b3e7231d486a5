#include "tests/oracle/excuses.h"

#include <cstddef>
#include <utility>

namespace headroom::oracle {
namespace {

using allocator::Operation;
using Kind = Operation::Kind;

constexpr std::size_t kCount = offsetof(allocator::Statistics, inactive_split) / 8;
constexpr std::size_t kBytes = offsetof(allocator::Statistics, inactive_split_bytes) / 8;

// Where the figures of one of the six begin: current, peak, allocated, freed.
std::size_t place(std::size_t stat) {
  return (stat < 3 ? kCount : kBytes) + stat % 3 * 4;
}

}  // namespace

// True: this operation may have made several frees that waited for the end of private pools.
bool Excuses::drains_deferred_frees(const Operation& operation) {
  switch (operation.kind) {
    case Kind::allocate:
      streams_[operation.id] = operation.stream;
      used_elsewhere_.erase(operation.id);
      break;
    case Kind::record_stream:
      if (streams_[operation.id] != operation.stream) used_elsewhere_.insert(operation.id);
      break;
    case Kind::free:
      deferred_frees_ += used_elsewhere_.erase(operation.id) > 0 && open_pools_ > 0;
      break;
    case Kind::begin_pool:
      ++open_pools_;
      break;
    case Kind::end_pool:
      --open_pools_;
      break;
    default:
      break;
  }
  if (open_pools_ > 0) return false;
  if (operation.kind != Kind::allocate && operation.kind != Kind::empty_cache) return false;
  return std::exchange(deferred_frees_, 0) >= 2;
}

bool Excuses::order_is_unknown(const Operation& operation, const fake_cuda::Noticed& noticed) {
  const bool drains = drains_deferred_frees(operation);
  queue_order_is_unknown_ |= drains;
  const bool several_queues = noticed.streams >= 2;
  const bool unknown =
      drains || several_queues || (queue_order_is_unknown_ && noticed.completed >= 2);
  if (noticed.pending == 0) queue_order_is_unknown_ = false;
  return unknown;
}

void Excuses::apply(const Operation& operation, Figures& real, const Figures& ours,
                    const fake_cuda::Noticed& noticed) {
  const bool any_order = order_is_unknown(operation, noticed);
  order_mattered_ |= any_order;
  was_used_ = false;
  if (!order_mattered_) return;

  for (std::size_t stat = 0; stat < kStats; ++stat) {
    Offsets& offsets = offsets_[stat];
    std::int64_t* const r = &real[place(stat)];
    const std::int64_t* const o = &ours[place(stat)];
    if (any_order) {
      was_used_ |= r[1] != o[1] || r[2] - o[2] != offsets.allocated;
      offsets = {r[1] - o[1], r[2] - o[2], r[3] - o[3]};
    }
    if (r[1] == o[1]) offsets.peak = 0;
    if (offsets.peak != 0) {
      was_used_ = true;
      r[1] = o[1];
    }
    r[2] -= offsets.allocated;
    r[3] -= offsets.freed;
  }
}

}  // namespace headroom::oracle
