// Activation offload: what autograd saves for the backward pass waits in host memory or in a file,
// and comes back shortly before it is needed. Gradients stay the same to the bit.
//
//   nn::Offload offload(net->parameters(), {.budget = parse_bytes("32GiB")});
//   Tensor loss;
//   {
//     const auto scope = offload.scope();
//     loss = net->forward(batch).sum();      // unmodified
//   }
//   loss.backward();
//
// A saved tensor moves with its whole storage, once, however many views of it are saved. These stay
// on their device: `stays` and all views of them, small tensors, tensors that the budget has no
// room for, and tensors on the CPU; they are handed to the SavedTensorScope outside. With
// checkpointing, the inputs of the checkpointed parts move. As without an Offload, the backward
// pass throws if a saved tensor was changed in place.
//
// On CUDA copies run on two streams beside the computation, from and into page-locked memory, and
// the computation does not wait for them. For this `ahead` storages stay on the device a little
// longer, and as many come back a little earlier than needed. If the device has no memory for one
// that comes early, it comes when it is needed. The graph may run on several streams.
//
// With a `directory` they wait in a file without a name there, which ends with the Offload, and
// host memory holds `ahead` + 1 of them on their way out and `ahead` + 1 on their way back. On a
// full disk the forward pass throws WriteError; it may then be repeated. The host does wait for
// the disk, and the system keeps as much of the file in memory as nothing else needs.
//
// Threads: one Offload for each thread that runs forward passes; backward passes may run on any.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "headroom/libtorch/saved_tensors.h"
#include "headroom/memory/saved_storages.h"

namespace headroom::nn {

using OffloadOptions = memory::SavedStorages::Options;
using OffloadUse = memory::WaitingUse;

class Offload {
 public:
  // `stays`: a model's parameters and buffers, looked at when a scope begins. Throws UsageError,
  // and WriteError if no file can be made in the directory.
  explicit Offload(std::vector<at::Tensor> stays, const OffloadOptions& options = {});

  [[nodiscard]] libtorch::SavedTensorScope scope();
  [[nodiscard]] OffloadUse use() const;

 private:
  std::vector<at::Tensor> stays_;
  std::shared_ptr<memory::SavedStorages> saved_;  // tensors that wait may outlive the Offload
};

}  // namespace headroom::nn
