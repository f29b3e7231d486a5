// The memory under a tensor on a simulated card: a block of the allocator's model and, in compute
// mode, host memory that holds the data.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

#include <memory>

#include "headroom/sim/card.h"
#include "headroom/sim/device/stream_order.h"

namespace headroom::sim::detail {

struct Block {
  std::shared_ptr<Card> card;  // the card lives as long as its last block
  allocator::BlockId id = allocator::kNoBlock;
  std::size_t bytes = 0;
  c10::DataPtr host;         // empty in shape-only mode, except known values (known.h)
  bool known = false;        // `host` was filled in shape-only mode: not data of a computing run
  bool assumed = false;      // `host` has assumed values (dispatch/assumptions.h)
  c10::DataPtr reads;        // values that unknown memory reads as (reads.h); null means zeros
  bool reads_alike = false;  // `reads` is one element, which stands for all
  bool blank = false;        // never written into: no value there is lost (known.h)
  MemoryUses uses;           // with check_streams; guarded by the card's StreamOrder
};

// Allocates memory of the card, for this thread's current stream there. `with_data`: also host
// memory, which can be given later, too.
[[nodiscard]] c10::DataPtr allocate_block(Card& card, std::size_t bytes, bool with_data);
// Null if it is not a storage of a simulated card, or an empty one.
[[nodiscard]] Block* block_of(const c10::Storage& storage);
// Throws DeviceError if the simulation of the tensor's card has ended, even if there is a new one.
void check_lives(const at::Tensor& tensor);
// Gives a storage this host memory, in place of any it has.
void give_data(const c10::Storage& storage, c10::DataPtr host);
// The same with new host memory of the right size, not initialised.
void give_data(const c10::Storage& storage);

// LibTorch's allocator for `sim`: torch::empty ends here, and statistics come from here.
[[nodiscard]] c10::DeviceAllocator* device_allocator();

}  // namespace headroom::sim::detail
