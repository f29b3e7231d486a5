#include "headroom/parallel/group.h"

#include <ATen/ATen.h>

namespace headroom::parallel {

void Group::sum(const at::Tensor& tensor) const {
  if (size() == 1) return;
  std::vector<at::Tensor> tensors{tensor};
  backend_->allreduce(tensors)->wait();
}

std::vector<double> Group::sum(std::vector<double> numbers) const {
  if (size() == 1 || numbers.empty()) return numbers;
  sum(at::from_blob(numbers.data(), {static_cast<std::int64_t>(numbers.size())}, at::kDouble));
  return numbers;
}

bool Group::any(bool mine) const {
  return size() == 1 ? mine : sum({mine ? 1.0 : 0.0}).front() != 0;
}

void Group::broadcast(const at::Tensor& tensor, int from) const {
  if (size() == 1) return;
  std::vector<at::Tensor> tensors{tensor};
  backend_->broadcast(tensors, {.rootRank = from})->wait();
}

c10::intrusive_ptr<c10d::Work> Group::send(const at::Tensor& tensor, int to) const {
  std::vector<at::Tensor> tensors{tensor};
  return backend_->send(tensors, to, /*tag=*/0);
}

void Group::receive(const at::Tensor& into, int from) const {
  std::vector<at::Tensor> tensors{into};
  backend_->recv(tensors, from, /*tag=*/0)->wait();
}

}  // namespace headroom::parallel
