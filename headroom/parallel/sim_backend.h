// Collectives between tensors on simulated cards, one process a rank, as `c10d::ProcessGroup` wants
// them: what NCCL is for CUDA's.
//
//   auto host = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
//   group->setBackend(c10::DeviceType::PrivateUse1, ..., sim_backend(host));
//
// What has values crosses through `host`, by way of the host's memory: everything in compute mode,
// small whole numbers on shape-only cards, too (sizes, counts, flags that a program decides by).
// Other tensors have no values and stay where they are. So all ranks must be in the same mode.
//
// Each call has ended when it returns, but for send and recv, which end with their Work. As with
// NCCL, all_gather into a list and reduce_scatter from one take memory of the card for the time of
// the call. What NCCL itself takes of a real card is not simulated.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace headroom::parallel {

[[nodiscard]] c10::intrusive_ptr<c10d::Backend> sim_backend(c10::intrusive_ptr<c10d::Backend> host);

}  // namespace headroom::parallel
