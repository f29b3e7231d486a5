// Collectives between tensors on simulated cards, one process per rank, as a backend of
// `c10d::ProcessGroup`: the counterpart of NCCL for CUDA.
//
//   auto host = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
//   group->setBackend(c10::DeviceType::PrivateUse1, ..., sim_backend(host));
//
// Tensors that have values are sent through `host`, by way of host memory: all tensors in compute
// mode, and small integer tensors on shape-only cards (sizes, counts, flags that control a
// program). Other tensors have no values and are not sent. So all ranks must use the same mode.
//
// Each call has completed when it returns, except send and recv, which complete with their Work. As
// with NCCL, all_gather into a list and reduce_scatter from one take card memory during the call.
// The memory that NCCL itself takes on a real card is not simulated.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace headroom::parallel {

[[nodiscard]] c10::intrusive_ptr<c10d::Backend> sim_backend(c10::intrusive_ptr<c10d::Backend> host);

}  // namespace headroom::parallel
