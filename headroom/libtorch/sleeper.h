// A tensor that sleeps: before the first operator that uses it, a function of its own runs. Idle
// memory comes back this way (memory/idle_tensors.h).
//
//   put_to_sleep(tensor, c10::make_intrusive<MySleeper>());
//   tensor.sum();                  // MySleeper::wake(), then the sum
//
// The tensor has a dispatch key that sees every operator, above autograd and autocast, and loses it
// when it wakes. What takes the address of the memory without an operator does not wake it.
// Tensors that are made of a sleeping one without an operator, such as Python's x.data, sleep as
// well and have the same sleeper.
//
// Threads: the first use of a sleeping tensor is by one thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

namespace headroom::libtorch {

class Sleeper : public c10::BackendMeta {
 public:
  // More than one tensor may wake the same sleeper.
  virtual void wake() = 0;
};

// The tensor must not carry anything yet, as a weight with a store or a follower does.
[[nodiscard]] bool can_sleep(const at::Tensor& tensor);
void put_to_sleep(const at::Tensor& tensor, c10::intrusive_ptr<Sleeper> sleeper);
[[nodiscard]] bool sleeps(const at::Tensor& tensor);
// Does nothing for a tensor that does not sleep.
void wake(const at::Tensor& tensor);

}  // namespace headroom::libtorch
