// Which calls about private pools are legal now, and one of them by chance. A pool may be open
// several times in its life, several may be open at once, and its number is used again only when it
// is surely gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "headroom/allocator/operation.h"
#include "tests/oracle/dice.h"

namespace headroom::oracle {

class PoolsDice {
 public:
  explicit PoolsDice(Dice& dice) : dice_(dice) {}

  // Nothing, if nothing of the kind that chance chose is possible.
  std::optional<allocator::Operation> next();
  // The next call that ends one of them; empty when all are ended.
  std::optional<allocator::Operation> next_end();

  // 0: the common pool. Where a request made now belongs.
  [[nodiscard]] allocator::PoolId current() const { return open_.empty() ? 0 : open_.back(); }

  // To be told: what happened to blocks, and that the cache was emptied.
  void allocated(allocator::PoolId pool) { ++pools_[pool].live; }
  void freed(allocator::PoolId pool) { --pools_[pool].live; }
  // Its blocks may stay active after free: the dice do not know when it is gone.
  void recorded(allocator::PoolId pool) { pools_[pool].is_certain = false; }
  void emptied();

 private:
  struct Pool {
    int uses = 0;  // begun and not released
    int live = 0;
    bool is_open = false;
    bool is_certain = true;
  };

  allocator::Operation begin(allocator::PoolId pool);
  allocator::Operation end(allocator::PoolId pool);
  allocator::Operation release(allocator::PoolId pool);
  std::vector<allocator::PoolId> closed_in_use() const;

  Dice& dice_;
  std::map<allocator::PoolId, Pool> pools_;
  std::vector<allocator::PoolId> open_;
  std::vector<allocator::PoolId> gone_;
  allocator::PoolId last_ = 0;
};

}  // namespace headroom::oracle
