// CUDA's numbering of the cards, which differs from the driver's (nvidia-smi). CUDA_DEVICE_ORDER
// and CUDA_VISIBLE_DEVICES change it.
//
// Parses the lists by PyTorch's own rules (torch/cuda/__init__.py, _parse_visible_devices, of
// 2.11), which imitate the driver's: the leading digits of an entry count ("1gpu" is 1), a negative
// or unreadable entry ends the list, a repeated one empties it, a UUID may be shortened, an unknown
// or ambiguous UUID ends the list.
//
//   CudaView view = cuda_view(machine, CudaEnvironment::current());
//   view.cards[0]   // position in machine.cards of the card that is cuda:0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/machine.h"

namespace headroom::gpu {

struct CudaEnvironment {
  std::optional<std::string> device_order;     // CUDA_DEVICE_ORDER
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES

  [[nodiscard]] static CudaEnvironment current();
};

struct CudaView {
  std::vector<std::size_t> cards;  // cards[n] is cuda:n, as a position in Machine::cards
  // CUDA's default order puts the fastest card first, by a rule NVIDIA does not publish. For a mix
  // of cards this is an estimate (throughput from the catalogue, then compute capability).
  bool order_is_estimated = false;
  std::string why_empty;  // one sentence if CUDA sees no card although the driver has some
  std::vector<std::string> warnings;
};

[[nodiscard]] CudaView cuda_view(const Machine& machine, const CudaEnvironment& environment);

// The number CUDA gives to the card at `position` of machine.cards; std::nullopt if CUDA does not
// see it.
[[nodiscard]] std::optional<int> cuda_number(const CudaView& view, std::size_t position);

}  // namespace headroom::gpu
