// Memory that bends: when a card refuses a request, what is needed later moves to the host, and the
// request is made again. Nothing is computed twice and nothing changes: the results are those of a
// card with more memory, to the bit. While nothing is refused, nothing moves.
//
//   memory::Spill spill;                        // from here on, on all cards
//   for (const Batch& batch : batches) {
//     torch::Tensor loss;
//     {
//       const auto saved = spill.scope();       // what autograd saves may wait
//       loss = net->forward(batch).sum();
//     }
//     loss.backward();
//     optimizer.step();
//     optimizer.zero_grad();
//     spill.end_step(libtorch::states_of(optimizer));  // so may these, until the next step()
//   }
//   std::cout << to_string(spill.use());
//
// What may wait:
//   - tensors that autograd saves inside scope(), once nothing but the graph holds their storage;
//   - tensors that set_idle() names, until an operator uses one. Each of them is watched by a
//     dispatch key of its own, so code that takes the address of such memory without an operator has
//     to call want() first.
// What the backward pass needs last goes first. A storage that had to leave in one step leaves
// early in the next, beside the computation, so that a loop of equal steps soon meets no refusal.
//
// If nothing is left to move, or the host has no room, the program gets the card's own
// out-of-memory error, with one line more. Until then no request of any thread fails.
//
// There is one Spill in a process: objects made while another lives share it, and its options.
// Cards of sim and of CUDA can refuse; for a process without one it costs what scope() costs.
//
// Threads: scope() holds for its thread, as libtorch::SavedTensorScope does; call everything from
// any thread. set_idle() and end_step(): while no other thread uses the tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/libtorch/saved_tensors.h"

namespace headroom::memory {

class RescueScope;

struct SpillOptions {
  // Host memory for what waits; std::nullopt: half of what the host has available now.
  std::optional<Bytes> host_memory = {};
  int sharers = 1;          // processes that have the host memory together
  Bytes smallest{4 << 10};  // smaller storages stay
  bool starts_cuda = true;  // false: rescue_on_cuda() is called later, when CUDA has started
};

struct SpillUse {
  std::int64_t saved = 0;    // storages that autograd saved on cards
  std::int64_t refused = 0;  // requests that a card refused
  std::int64_t rescued = 0;  // of them, those that were served in the end
  Bytes moved;               // to the host
  // In the last step that ended.
  std::int64_t refused_in_step = 0;
  Bytes moved_in_step;
  Bytes waiting;       // there now
  Bytes peak_waiting;  // there at once, at most
  Bytes needed;        // of the fullest card, with what waited, at most
  double seconds = 0;  // that requests waited for moves
};
// "3 requests were refused and served: at most 1.2 GiB waited on the host, ..."; "nothing was
// refused".
[[nodiscard]] std::string to_string(const SpillUse& use);

class Spill {
 public:
  explicit Spill(const SpillOptions& options = {});
  ~Spill();
  Spill(const Spill&) = delete;
  Spill& operator=(const Spill&) = delete;

  // As SavedTensorScope, for this thread.
  [[nodiscard]] libtorch::SavedTensorScope scope();
  // Its hooks, for a SavedTensorScope that lives elsewhere.
  [[nodiscard]] libtorch::Pack hooks();
  // The same for hooks of another kind, such as Python's. Empty: the tensor stays as it is.
  [[nodiscard]] libtorch::Unpack pack(const at::Tensor& tensor);

  // These may leave until an operator uses them, or want() names them. What is needed later leaves
  // first: states are needed at 1, an idle model at some time before.
  void set_idle(const std::vector<at::Tensor>& tensors, double needed = 1);
  void want(const std::vector<at::Tensor>& tensors);
  // The next forward pass begins a step like this one; `idle` as for set_idle().
  void end_step(const std::vector<at::Tensor>& idle = {});

  [[nodiscard]] SpillUse use() const;

 private:
  class Shared;
  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<RescueScope> rescue_;
};

}  // namespace headroom::memory
