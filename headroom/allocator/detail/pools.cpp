// Private pools: memory for the requests of one CUDA graph (or torch.cuda.MemPool), kept apart from
// all other memory until the pool is released and everything in it is free.
#include <algorithm>
#include <string>

#include "headroom/allocator/detail/card_state.h"
#include "headroom/base/error.h"

namespace headroom::allocator {

void CachingAllocator::Card::begin_pool(PoolId id) {
  constexpr std::string_view function = "CachingAllocator::begin_pool";
  if (id == 0) throw UsageError(expectation(function, "a private pool's number", "0", "1"));
  if (std::find(open_pools.begin(), open_pools.end(), id) != open_pools.end())
    throw UsageError(expectation(function, "a pool that is not in use", std::to_string(id)));
  if (private_pools.contains(id)) {
    ++live_pool(id, function).users;
  } else {
    PrivatePool pool;
    pool.small = new_pool(true, id);
    pool.large = new_pool(false, id);
    private_pools.emplace(id, pool);
  }
  open_pools.push_back(id);
}

void CachingAllocator::Card::end_pool(PoolId id) {
  const auto at = std::find(open_pools.begin(), open_pools.end(), id);
  if (at == open_pools.end())
    throw UsageError(
        expectation("CachingAllocator::end_pool", "a pool that was begun", std::to_string(id)));
  open_pools.erase(at);
}

void CachingAllocator::Card::release_pool(PoolId id) {
  --live_pool(id, "CachingAllocator::release_pool").users;
}

CachingAllocator::Card::PrivatePool& CachingAllocator::Card::live_pool(PoolId id,
                                                                       std::string_view function) {
  const auto found = private_pools.find(id);
  if (found == private_pools.end())
    throw UsageError(expectation(function, "a pool that exists", std::to_string(id)));
  if (found->second.users == 0)
    throw UsageError(expectation(function, "a pool that was not released yet", std::to_string(id)));
  return found->second;
}

std::uint32_t CachingAllocator::Card::new_pool(bool is_small, PoolId owner) {
  if (unused_pools.empty()) {
    pools.emplace_back();
    unused_pools.push_back(static_cast<std::uint32_t>(pools.size() - 1));
  }
  const std::uint32_t pool = unused_pools.back();
  unused_pools.pop_back();
  pools[pool] = Pool{};
  pools[pool].is_small = is_small;
  pools[pool].owner = owner;
  return pool;
}

// Releases the free memory of released pools, and removes pools that are empty then.
void CachingAllocator::Card::drop_empty_pools() {
  for (auto at = private_pools.begin(); at != private_pools.end();) {
    const PrivatePool& pool = at->second;
    if (pool.users > 0) {
      ++at;
      continue;
    }
    release_pool_blocks(pool.small);
    release_pool_blocks(pool.large);
    const bool has_blocks = pools[pool.small].blocks + pools[pool.large].blocks > 0;
    if (pool.driver_calls == 0 && has_blocks) met_fault = true;  // 2.11 removes it nevertheless
    if (pool.driver_calls != 0 || has_blocks) {
      ++at;
      continue;
    }
    unused_pools.push_back(pool.small);
    unused_pools.push_back(pool.large);
    at = private_pools.erase(at);
  }
}

void CachingAllocator::Card::count_driver_call(std::uint32_t pool, int change) {
  if (pools[pool].owner == 0) return;
  int& calls = private_pools.at(pools[pool].owner).driver_calls;
  if (calls + change < 0) {
    met_fault = true;  // 2.11 fails an internal assertion
    return;
  }
  calls += change;
}

}  // namespace headroom::allocator
