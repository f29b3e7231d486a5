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

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/libtorch/saved_tensors.h"

namespace headroom::nn {

struct OffloadOptions {
  Bytes smallest{std::int64_t{1} << 20};  // smaller storages stay
  std::optional<Bytes> budget = {};       // of host memory or of the file; std::nullopt: no limit
  bool pinned = true;                     // page-locked host memory
  int ahead = 2;                          // storages that leave late, or come back early
  std::filesystem::path directory = {};   // of the file; an empty path means host memory
  bool copies = true;  // false: memory moves and data is lost, for dry runs, which have none
};

struct OffloadUse {
  Bytes waiting;            // off their device now
  Bytes peak_waiting;       // since the Offload was made
  std::int64_t moved = 0;   // storages that left a device
  std::int64_t stayed = 0;  // storages that the budget had no room for
};

class Offload {
 public:
  // `stays`: a model's parameters and buffers, looked at when a scope begins. Throws UsageError,
  // and WriteError if no file can be made in the directory.
  explicit Offload(std::vector<at::Tensor> stays, const OffloadOptions& options = {});

  [[nodiscard]] libtorch::SavedTensorScope scope();
  [[nodiscard]] OffloadUse use() const;

 private:
  class Store;
  std::shared_ptr<Store> store_;  // tensors that wait may outlive the Offload
};

}  // namespace headroom::nn
