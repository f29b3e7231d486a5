// The ranks that train one model together. A rank is a thread or a process with a device of its
// own; all ranks run the same program and call the functions of their Group in the same order.
//
//   const parallel::Group group(backend);   // in_process.h, or any other backend of c10d
//   group.sum(gradient);                    // of all ranks
//   if (group.any(failed)) undo();          // all ranks decide the same
//
// A Group without a backend has one rank, and its functions change nothing and cost nothing. So
// code for several ranks needs no special case for one.
//
// A function that throws, because memory ran out, has taken part nevertheless: the other ranks do
// not wait for it. What they got from this rank is undefined.
//
// Threads: a Group is a handle and may be copied. Each rank calls from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

namespace headroom::parallel {

class Group {
 public:
  Group() = default;
  explicit Group(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  [[nodiscard]] int rank() const { return backend_ ? backend_->getRank() : 0; }
  [[nodiscard]] int size() const { return backend_ ? backend_->getSize() : 1; }

  // Replaces the values of a contiguous tensor on each rank by the sum over all ranks.
  void sum(const at::Tensor& tensor) const;
  // The sums of numbers on the host.
  [[nodiscard]] std::vector<double> sum(std::vector<double> numbers) const;
  // Whether any rank says so.
  [[nodiscard]] bool any(bool mine) const;
  // Copies the values of rank `from` to all others.
  void broadcast(const at::Tensor& tensor, int from) const;
  // From one rank to another, which has to call the other one of the two. send() returns at once,
  // and the tensor must stay as it is until the Work is done. An undefined `into` keeps nothing.
  [[nodiscard]] c10::intrusive_ptr<c10d::Work> send(const at::Tensor& tensor, int to) const;
  void receive(const at::Tensor& into, int from) const;

  [[nodiscard]] const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace headroom::parallel
