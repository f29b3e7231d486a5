#include "headroom/allocator/operation.h"

#include <string>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::allocator {

Player::Player(CachingAllocator card, std::vector<std::string> settings_texts)
    : card_(std::move(card)), settings_texts_(std::move(settings_texts)) {}

BlockId Player::block_of(std::uint32_t id) const {
  return id < blocks_.size() ? blocks_[id] : kNoBlock;
}

bool Player::play(const Operation& operation) {
  using Kind = Operation::Kind;
  switch (operation.kind) {
    case Kind::allocate: {
      if (operation.bytes == 0) return true;
      if (operation.id >= blocks_.size()) blocks_.resize(operation.id + std::size_t{1}, kNoBlock);
      BlockId& block = blocks_[operation.id];
      if (block != kNoBlock)
        throw UsageError(expectation("Player::play", "an id that is not allocated",
                                     std::to_string(operation.id)));
      block = card_.allocate(Bytes{operation.bytes}, operation.stream);
      return block != kNoBlock;
    }
    case Kind::free:
      if (const BlockId block = block_of(operation.id); block != kNoBlock) {
        blocks_[operation.id] = kNoBlock;
        card_.free(block);
      }
      return true;
    case Kind::record_stream:
      if (const BlockId block = block_of(operation.id); block != kNoBlock)
        card_.record_stream(block, operation.stream);
      return true;
    case Kind::complete_events:
      if (operation.stream == Operation::kAllStreams)
        card_.complete_events();
      else
        card_.complete_events(operation.stream);
      return true;
    case Kind::empty_cache:
      card_.empty_cache();
      return true;
    case Kind::reset_peaks:
      card_.reset_peaks();
      return true;
    case Kind::change_settings: {
      Settings settings = card_.settings();
      allocator::apply(settings, settings_texts_.at(operation.id), card_.version());
      card_.change_settings(settings);
      return true;
    }
    case Kind::begin_pool:
      card_.begin_pool(static_cast<PoolId>(operation.bytes));
      return true;
    case Kind::end_pool:
      card_.end_pool(static_cast<PoolId>(operation.bytes));
      return true;
    case Kind::release_pool:
      card_.release_pool(static_cast<PoolId>(operation.bytes));
      return true;
    case Kind::nothing:
      return true;
  }
  return true;
}

std::uint64_t Player::play(std::span<const Operation> operations) {
  std::uint64_t refused = 0;
  for (const Operation& operation : operations) refused += !play(operation);
  return refused;
}

}  // namespace headroom::allocator
