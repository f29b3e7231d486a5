// Streams that want more than the card has, on PyTorch's own allocator through the one that asks
// (headroom/cuda/loaded/asking_allocator.h). When it asks, blocks that may wait elsewhere are
// freed, as memory::Spill does; they come back later. The model gets the same requests and the same
// frees, and all statistics are compared after every operation.
//
//   allocator_oracle bend --streams 1000
#pragma once

#include <cstdint>

namespace headroom::oracle {

// Prints a row of counts. False if a request failed although something could have been freed, if a
// request of a private pool was asked about, or if anything differs from the model.
[[nodiscard]] bool bend(std::uint64_t streams, std::uint64_t seed);

}  // namespace headroom::oracle
