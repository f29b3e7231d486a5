// Tensors that are not used for a while, such as an optimizer's states between two steps, or a
// frozen model that waits for its turn. Their memory may go to the host; the first operator that
// uses one gets it back.
//
//   idle.set_idle(states, 1);  // after optimizer.step()
//   idle.want(states);         // before the next one, so that all come at once
//
// One that had to leave leaves as soon as it is idle again, beside the computation.
//
// While it is idle a tensor sleeps (libtorch/sleeper.h): the operator that wakes it gets its memory
// back, and nothing leaves under a running operator. Code that takes the address of the memory
// without an operator must want() the tensor first: it would find null. Tensors that share their
// memory with others stay, and so do those of subclasses.
//
// Threads: call everything from any thread, but set_idle() only while no other thread uses the
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "headroom/memory/movable.h"

namespace headroom::memory {

namespace detail {
struct IdleState;
}

class IdleTensors {
 public:
  // Tensors below `smallest` stay.
  IdleTensors(Bytes smallest, bool pinned, std::shared_ptr<WaitingBooks> books);
  ~IdleTensors();
  IdleTensors(const IdleTensors&) = delete;
  IdleTensors& operator=(const IdleTensors&) = delete;

  // `needed`: when; larger is later, and more than 0 is after the next backward pass.
  void set_idle(const std::vector<at::Tensor>& tensors, double needed);
  // One that left before, and is at most this large, need not leave early any more.
  void keep(Bytes size);
  // They are back, and no longer idle. Throws if a card has no memory for one.
  void want(const std::vector<at::Tensor>& tensors);
  [[nodiscard]] std::vector<Movable> movable(c10::Device device);

 private:
  const std::shared_ptr<detail::IdleState> state_;  // tensors that wait may outlive the object
};

}  // namespace headroom::memory
