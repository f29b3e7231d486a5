#include "headroom/allocator/caching_allocator.h"

#include <cmath>
#include <utility>

#include "headroom/allocator/detail/card_state.h"
#include "headroom/base/error.h"

namespace headroom::allocator {

CachingAllocator::CachingAllocator(const CardOptions& options)
    : card_(std::make_unique<Card>(options)) {
  if (options.capacity < Bytes{0} || options.capacity > kUnlimited)
    throw UsageError(expectation("CachingAllocator",
                                 "a capacity from 0 B to " + to_string(kUnlimited),
                                 std::to_string(options.capacity.count)));
  set_memory_fraction(options.settings.per_process_memory_fraction);
}
CachingAllocator::CachingAllocator(const CachingAllocator& other)
    : card_(std::make_unique<Card>(*other.card_)) {}
CachingAllocator::CachingAllocator(CachingAllocator&&) noexcept = default;
CachingAllocator& CachingAllocator::operator=(CachingAllocator other) noexcept {
  std::swap(card_, other.card_);
  return *this;
}
CachingAllocator::~CachingAllocator() = default;

BlockId CachingAllocator::allocate(Bytes requested, StreamId stream) {
  if (requested.count <= 0)
    throw UsageError(expectation("CachingAllocator::allocate", "at least one byte",
                                 std::to_string(requested.count)));
  if (requested >= kTooLarge) {
    card_->refusal = {.requested = requested};
    return kNoBlock;
  }
  return card_->allocate(requested.count, stream);
}
void CachingAllocator::free(BlockId block) {
  card_->free(block);
}
void CachingAllocator::record_stream(BlockId block, StreamId stream) {
  card_->record_stream(block, stream);
}
void CachingAllocator::complete_events(std::optional<StreamId> stream) {
  if (stream) return card_->complete_events(*stream);
  for (auto& [each, queue] : card_->queues) queue.done = queue.blocks.size();
}
void CachingAllocator::empty_cache() {
  card_->release_cached();
}

void CachingAllocator::begin_pool(PoolId pool) {
  card_->begin_pool(pool);
}
void CachingAllocator::end_pool(PoolId pool) {
  card_->end_pool(pool);
}
void CachingAllocator::release_pool(PoolId pool) {
  card_->release_pool(pool);
}

const Version& CachingAllocator::version() const {
  return card_->version;
}
const Settings& CachingAllocator::settings() const {
  return card_->settings;
}
void CachingAllocator::change_settings(const Settings& settings) {
  card_->adopt(settings);
}
void CachingAllocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1))
    throw UsageError(expectation("set_memory_fraction", "a number from 0 to 1",
                                 std::to_string(fraction), "0.8"));
  card_->limit.reset();
  if (fraction < 1) {
    const double share = fraction * static_cast<double>(card_->driver.capacity());
    card_->limit =
        static_cast<std::int64_t>(card_->version.rounds_fraction ? std::round(share) : share);
  }
}
void CachingAllocator::set_used_by_others(Bytes used) {
  card_->driver.set_used_by_others(used.count);
}

const Statistics& CachingAllocator::statistics() const {
  return card_->statistics;
}
Bytes CachingAllocator::free_on_card() const {
  return Bytes{card_->driver.free()};
}
BlockInfo CachingAllocator::block(BlockId block) const {
  return card_->describe(card_->allocated_block(block, "CachingAllocator::block"));
}
std::vector<SegmentInfo> CachingAllocator::snapshot() const {
  return card_->snapshot();
}
const OutOfMemory& CachingAllocator::last_out_of_memory() const {
  return card_->refusal;
}
bool CachingAllocator::met_fault_of_original() const {
  return card_->met_fault;
}

namespace {

template <class Change>
void for_each_stat(Statistics& statistics, Change change) {
  for (StatByPool* stat :
       {&statistics.allocation, &statistics.segment, &statistics.active, &statistics.inactive_split,
        &statistics.allocated_bytes, &statistics.reserved_bytes, &statistics.active_bytes,
        &statistics.inactive_split_bytes, &statistics.requested_bytes}) {
    change(stat->all);
    change(stat->small);
    change(stat->large);
  }
  change(statistics.oversize_allocations);
  change(statistics.oversize_segments);
}

}  // namespace

void CachingAllocator::reset_peaks() {
  for_each_stat(card_->statistics, [](Stat& stat) { stat.peak = stat.current; });
}
void CachingAllocator::reset_accumulated() {
  Statistics& statistics = card_->statistics;
  for_each_stat(statistics, [](Stat& stat) { stat.allocated = stat.freed = 0; });
  statistics.num_alloc_retries = statistics.num_ooms = statistics.num_sync_all_streams = 0;
  statistics.num_device_alloc = statistics.num_device_free = 0;
}

void CachingAllocator::observe(Observer* observer) {
  card_->slot.observer = observer;
}

}  // namespace headroom::allocator
