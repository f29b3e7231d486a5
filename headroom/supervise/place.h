// Where one try of a job runs: cards that are leased for it, and the variables that tell it so.
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

  // What the job may use of the card that gives least; nothing on the CPU.
  [[nodiscard]] std::optional<Bytes> room() const;
  // "GPU 0", "GPU 1 and GPU 3", "the CPU"
  [[nodiscard]] std::string name() const;
};

// "NAME=value" for a program that is to see these cards and no others:
//   CUDA_VISIBLE_DEVICES     the driver's numbers, or UUIDs (of slices always)
//   CUDA_DEVICE_ORDER        PCI_BUS_ID, so that CUDA counts as the driver does
//   HEADROOM_GPUS            the same for programs that know Headroom: auto, cpu, or sim:...
//   HEADROOM_LEASE           the lease
//   PYTORCH_CUDA_ALLOC_CONF  what is recommended for memory of changing sizes, unless it is set
[[nodiscard]] std::vector<std::string> environment_of(const Place& place,
                                                      const gpu::Devices& devices, bool by_uuid);

}  // namespace headroom::supervise
