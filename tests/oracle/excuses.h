// The one thing in which two right allocators may differ: the figures of inactive_split after
// several blocks were freed in the order of a hash table, which depends on addresses of this
// process and is not a rule.
//
// The blocks end up the same; only the ways there differ. So `current` is always compared, the sums
// are compared by what they grow, and a peak again as soon as both agree once more.
#pragma once

#include <array>
#include <unordered_map>
#include <unordered_set>

#include "headroom/allocator/operation.h"
#include "tests/oracle/fake_cuda/fake_cuda.h"
#include "tests/oracle/figures.h"

namespace headroom::oracle {

class Excuses {
 public:
  // After each operation, with what was noticed in it. Sets what may differ in `real` to `ours`.
  void apply(const allocator::Operation& operation, Figures& real, const Figures& ours,
             const fake_cuda::Noticed& noticed);

  // In the operation just applied something differed and was let pass.
  [[nodiscard]] bool was_used() const { return was_used_; }
  // Blocks were freed in an order that is no rule; `requested` of free blocks depends on it.
  [[nodiscard]] bool order_mattered() const { return order_mattered_; }

 private:
  static constexpr std::size_t kStats = 6;  // count and bytes, of all, small and large
  struct Offsets {
    std::int64_t peak = 0, allocated = 0, freed = 0;  // real minus ours
  };

  bool drains_deferred_frees(const allocator::Operation& operation);
  bool order_is_unknown(const allocator::Operation& operation, const fake_cuda::Noticed& noticed);

  std::array<Offsets, kStats> offsets_{};
  std::unordered_map<std::uint32_t, allocator::StreamId> streams_;  // of live blocks, by id
  std::unordered_set<std::uint32_t> used_elsewhere_;                // record_stream was called
  int open_pools_ = 0;
  int deferred_frees_ = 0;  // of blocks used elsewhere, while a private pool is open
  bool queue_order_is_unknown_ = false;
  bool was_used_ = false;
  bool order_mattered_ = false;
};

}  // namespace headroom::oracle
