// The place of one try: the cards leased for it, and the variables that name them to the command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/devices.h"
#include "headroom/gpu/select.h"
#include "headroom/lease/lease.h"

namespace headroom::supervise {

struct Place {
  std::optional<lease::Lease> lease;  // none on the CPU
  std::vector<gpu::Selection::Pick> cards;

  // Usable memory of the tightest card; std::nullopt on the CPU.
  [[nodiscard]] std::optional<Bytes> room() const;
  // "GPU 0", "GPU 1 and GPU 3", "the CPU"
  [[nodiscard]] std::string name() const;
};

// "NAME=value" for a program that must see these cards and no others:
//   CUDA_VISIBLE_DEVICES     the driver's numbers, or UUIDs (always for slices)
//   CUDA_DEVICE_ORDER        PCI_BUS_ID, so that CUDA counts as the driver does
//   HEADROOM_GPUS            the same for programs that know Headroom: auto, cpu, or sim:...
//   HEADROOM_LEASE           the lease
//   PYTORCH_CUDA_ALLOC_CONF  the recommendation for tensors of changing sizes, unless it is set
[[nodiscard]] std::vector<std::string> environment_of(const Place& place,
                                                      const gpu::Devices& devices, bool by_uuid);

}  // namespace headroom::supervise
