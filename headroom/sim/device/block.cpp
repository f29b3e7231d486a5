#include "headroom/sim/device/block.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/device/streams.h"

namespace headroom::sim::detail {
namespace {

using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;
using StatArray = c10::CachingAllocator::StatArray;
using StatType = c10::CachingAllocator::StatType;

void delete_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (StreamOrder* const order = block->card->stream_order()) order->freed(block->uses);
  block->card->free(block->id);
}

c10::CachingAllocator::Stat converted(const allocator::Stat& ours) {
  c10::CachingAllocator::Stat stat;
  stat.current = ours.current;
  stat.peak = ours.peak;
  stat.allocated = ours.allocated;
  stat.freed = ours.freed;
  return stat;
}

StatArray converted(const allocator::StatByPool& ours) {
  StatArray stats;
  stats[static_cast<std::size_t>(StatType::AGGREGATE)] = converted(ours.all);
  stats[static_cast<std::size_t>(StatType::SMALL_POOL)] = converted(ours.small);
  stats[static_cast<std::size_t>(StatType::LARGE_POOL)] = converted(ours.large);
  return stats;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    Card& card = card_at(current_card());
    if (bytes == 0) return {nullptr, card.device()};
    return allocate_block(card, bytes, mode_now(card) == Mode::compute);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    if (to != nullptr && from != nullptr) std::memcpy(to, from, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < card_count(); ++i) card_at(i).empty_cache();
  }
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    if (pointer.get_deleter() != &delete_block) return;
    auto* const block = static_cast<Block*>(pointer.get_context());
    block->card->record_stream(block->id, allocator_stream(stream.id()));
    if (StreamOrder* const order = block->card->stream_order())
      order->record_stream(block->uses, {block->card->index(), stream.id()});
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const allocator::Statistics ours = card_at(device).statistics();
    DeviceStats stats;
    stats.allocation = converted(ours.allocation);
    stats.segment = converted(ours.segment);
    stats.active = converted(ours.active);
    stats.inactive_split = converted(ours.inactive_split);
    stats.allocated_bytes = converted(ours.allocated_bytes);
    stats.reserved_bytes = converted(ours.reserved_bytes);
    stats.active_bytes = converted(ours.active_bytes);
    stats.inactive_split_bytes = converted(ours.inactive_split_bytes);
    stats.requested_bytes = converted(ours.requested_bytes);
    stats.num_alloc_retries = ours.num_alloc_retries;
    stats.num_ooms = ours.num_ooms;
    stats.num_sync_all_streams = ours.num_sync_all_streams;
    stats.num_device_alloc = ours.num_device_alloc;
    stats.num_device_free = ours.num_device_free;
    stats.oversize_allocations = converted(ours.oversize_allocations);
    stats.oversize_segments = converted(ours.oversize_segments);
    stats.max_split_size = ours.max_split_size;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    card_at(device).reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override { card_at(device).reset_peaks(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const Card& card = card_at(device);
    return {static_cast<std::size_t>(card.free_bytes().count),
            static_cast<std::size_t>(card.capacity().count)};
  }
};

}  // namespace

c10::DataPtr allocate_block(Card& card, std::size_t bytes, bool with_data) {
  auto block = std::make_unique<Block>();
  block->bytes = bytes;
  const c10::StreamId stream = current_stream(card.index());
  block->id = card.allocate(Bytes{static_cast<std::int64_t>(bytes)}, allocator_stream(stream));
  block->card = card.shared_from_this();
  if (StreamOrder* const order = card.stream_order())
    order->allocated(block->uses, {card.index(), stream}, card.block(block->id).address, bytes);
  // From here on delete_block returns the card's memory, also if the host has none.
  c10::DataPtr pointer{nullptr, block.release(), &delete_block, card.device()};
  if (!with_data) return pointer;
  auto* const made = static_cast<Block*>(pointer.get_context());
  made->host = c10::GetCPUAllocator()->allocate(bytes);
  return {made->host.get(), pointer.release_context(), &delete_block, card.device()};
}

Block* block_of(const c10::Storage& storage) {
  const c10::DataPtr& pointer = storage.data_ptr();
  return pointer.get_deleter() == &delete_block ? static_cast<Block*>(pointer.get_context())
                                                : nullptr;
}

void check_lives(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  const Block* const block = block_of(tensor.storage());
  if (block == nullptr || block->card.get() == find_card(tensor.device().index())) return;
  throw libtorch::DeviceError(
      expectation("sim", "tensors of the simulation that lives now",
                  "one of " + std::to_string(block->bytes) + " bytes, whose simulation has ended",
                  "tensor.cpu() before the simulation ends, or keeping what simulate() returns"));
}

void give_data(const c10::Storage& storage, c10::DataPtr host) {
  Block* const block = block_of(storage);
  block->host = std::move(host);
  block->known = block->card->mode() == Mode::shape_only;
  block->assumed = false;
  block->reads = {};
  c10::DataPtr pointer{block->host.get(), block, &delete_block, storage.device()};
  // The old pointer has the same block as context: release it without deleting the block.
  storage.unsafeGetStorageImpl()->set_data_ptr(std::move(pointer)).release_context();
}

void give_data(const c10::Storage& storage) {
  give_data(storage, c10::GetCPUAllocator()->allocate(block_of(storage)->bytes));
}

c10::DeviceAllocator* device_allocator() {
  static DeviceAllocator& allocator = *new DeviceAllocator;  // outlives global tensors
  return &allocator;
}

}  // namespace headroom::sim::detail
