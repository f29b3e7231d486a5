#include "tests/oracle/figures.h"

#include <cstddef>

namespace headroom::oracle {
namespace {

using allocator::Statistics;
constexpr std::size_t kInStat = 4, kInPools = 12;
const char* const kStat[] = {"current", "peak", "allocated", "freed"};
const char* const kPool[] = {"all", "small", "large"};
const char* const kByPool[] = {
    "allocation",      "segment",        "active",       "inactive_split",
    "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
    "requested_bytes"};
const char* const kCounts[] = {"num_alloc_retries", "num_ooms", "num_sync_all_streams",
                               "num_device_alloc", "num_device_free"};
const char* const kOversize[] = {"oversize_allocations", "oversize_segments"};
constexpr std::size_t kFirstCount = 9 * kInPools, kFirstOversize = kFirstCount + 5;
constexpr std::size_t kMaxSplit = kFirstOversize + 2 * kInStat;

// The names follow the order of the members.
static_assert(offsetof(Statistics, inactive_split) == 8 * 3 * kInPools);
static_assert(offsetof(Statistics, requested_bytes) == 8 * 8 * kInPools);
static_assert(offsetof(Statistics, num_alloc_retries) == 8 * kFirstCount);
static_assert(offsetof(Statistics, oversize_allocations) == 8 * kFirstOversize);
static_assert(offsetof(Statistics, max_split_size) == 8 * kMaxSplit);
static_assert(offsetof(Statistics, num_oom_rejections) == 8 * (kMaxSplit + 1));
static_assert(kFigures == kMaxSplit + 2);

}  // namespace

std::string figure_name(std::size_t index) {
  const auto stat = [](std::size_t place) { return std::string(".") + kStat[place % kInStat]; };
  if (index < kFirstCount)
    return kByPool[index / kInPools] + (std::string(".") + kPool[index % kInPools / kInStat]) +
           stat(index);
  if (index < kFirstOversize) return kCounts[index - kFirstCount];
  const std::size_t place = index - kFirstOversize;
  if (index < kMaxSplit) return kOversize[place / kInStat] + stat(place);
  return index == kMaxSplit ? "max_split_size" : "num_oom_rejections";
}

}  // namespace headroom::oracle
