// The memory under a tensor on a simulated card: a block of the allocator's model and, in compute
// mode, host memory that holds the data.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include <memory>

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

struct Block {
  std::shared_ptr<Card> card;  // lives as long as its last block
  allocator::BlockId id = allocator::kNoBlock;
  std::size_t bytes = 0;
  c10::DataPtr host;   // empty in shape-only mode, but for what is known (known.h)
  bool known = false;  // it was filled while the card was shape-only: not a computing run's data
  c10::DataPtr reads;  // what it reads as though it is not known (unknown.h); empty: zeros
  bool reads_alike = false;  // `reads` is one element, and all are like it
  bool blank = false;  // nobody has written into it: what is not there is not missing (known.h)
};

// Takes memory of the card that holds this thread's current stream there. `with_data`: and host
// memory for it, without which it can be given later.
[[nodiscard]] c10::DataPtr allocate_block(Card& card, std::size_t bytes, bool with_data);
// Null: the storage is not one of ours, or empty.
[[nodiscard]] Block* block_of(const c10::Storage& storage);
// Throws UsageError if the simulation that a card's tensor belongs to has ended, whether there is
// another one or not.
void check_lives(const at::Tensor& tensor);
// Gives a storage without data this host memory; what is there already is replaced.
void give_data(const c10::Storage& storage, c10::DataPtr host);
// Host memory of the right size, not initialised.
void give_data(const c10::Storage& storage);

// LibTorch's way to the same: torch::empty on `sim` ends here, statistics come from here.
[[nodiscard]] c10::DeviceAllocator* device_allocator();

}  // namespace headroom::sim::detail
