#include "headroom/parallel/detail/done_work.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace headroom::parallel::detail {
namespace {

std::vector<c10::Device> cards_of(const Tensors& tensors) {
  std::vector<c10::Device> cards;
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_cpu() && std::find(cards.begin(), cards.end(), tensor.device()) == cards.end())
      cards.push_back(tensor.device());
  return cards;
}

class DoneWork final : public c10d::Work {
 public:
  DoneWork(c10d::OpType type, Tensors results) : Work(-1, type), results_(std::move(results)) {
    finish();
  }
  std::vector<at::Tensor> result() override { return results_; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return ready(results_); }

 private:
  Tensors results_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, Tensors results) {
  return c10::make_intrusive<DoneWork>(type, std::move(results));
}

c10::intrusive_ptr<c10d::Work> done(c10d::OpType type, const std::vector<Tensors>& results) {
  Tensors all;
  for (const Tensors& list : results) all.insert(all.end(), list.begin(), list.end());
  return done(type, std::move(all));
}

c10::intrusive_ptr<c10::ivalue::Future> ready(const Tensors& results) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), cards_of(results));
  future->markCompleted(c10::IValue(results));
  return future;
}

void flatten_as_nccl_does(const Tensors& list) {
  if (list.empty() || list.front().is_cpu()) return;
  for (const at::Tensor& tensor : list)
    if (tensor.sizes() != list.front().sizes()) return;
  (void)at::empty({static_cast<std::int64_t>(list.size()) * list.front().numel()},
                  list.front().options());
}

Tensors parts(const at::Tensor& whole, int ranks, const std::vector<std::int64_t>& sizes) {
  if (!sizes.empty()) return whole.split_with_sizes(sizes);
  return whole.tensor_split(ranks);
}

}  // namespace headroom::parallel::detail
