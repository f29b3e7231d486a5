#include "tests/oracle/pools_dice.h"

#include <algorithm>

namespace headroom::oracle {
namespace {

using allocator::Operation;
using allocator::PoolId;
using Kind = Operation::Kind;

Operation call(Kind kind, PoolId pool) {
  return {.bytes = static_cast<std::int64_t>(pool), .kind = kind};
}

}  // namespace

Operation PoolsDice::begin(PoolId pool) {
  ++pools_[pool].uses;
  pools_[pool].is_open = true;
  open_.push_back(pool);
  return call(Kind::begin_pool, pool);
}

Operation PoolsDice::end(PoolId pool) {
  pools_[pool].is_open = false;
  std::erase(open_, pool);
  return call(Kind::end_pool, pool);
}

Operation PoolsDice::release(PoolId pool) {
  --pools_[pool].uses;
  return call(Kind::release_pool, pool);
}

std::vector<PoolId> PoolsDice::closed_in_use() const {
  std::vector<PoolId> found;
  for (const auto& [id, pool] : pools_)
    if (id != 0 && pool.uses > 0 && !pool.is_open) found.push_back(id);
  return found;
}

void PoolsDice::emptied() {
  std::erase_if(pools_, [&](const auto& each) {
    const auto& [id, pool] = each;
    const bool is_gone =
        id != 0 && pool.uses == 0 && pool.live == 0 && !pool.is_open && pool.is_certain;
    if (is_gone) gone_.push_back(id);
    return is_gone;
  });
}

std::optional<Operation> PoolsDice::next() {
  const std::vector<PoolId> closed = closed_in_use();
  switch (dice_.below(open_.empty() ? 3 : 5)) {
    case 0:
      if (open_.size() >= 3) return {};
      if (!gone_.empty() && dice_.one_in(2)) {
        const PoolId again = gone_.back();
        gone_.pop_back();
        return begin(again);
      }
      return begin(++last_);
    case 1:
      if (closed.empty() || open_.size() >= 3) return {};
      return begin(dice_.pick(closed));
    case 2:
      if (closed.empty()) return {};
      return release(dice_.pick(closed));
    default:
      return end(dice_.pick(open_));
  }
}

std::optional<Operation> PoolsDice::next_end() {
  if (!open_.empty()) return end(open_.back());
  const std::vector<PoolId> closed = closed_in_use();
  if (!closed.empty()) return release(closed.front());
  return {};
}

}  // namespace headroom::oracle
