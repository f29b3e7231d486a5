#include "headroom/parallel/detail/exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <mutex>

#include "headroom/sim/card.h"
#include "headroom/sim/simulate.h"
#include "headroom/sim/tensor.h"

namespace headroom::parallel::detail {
namespace {

template <class Whole, class Convert>
auto each(const std::vector<Whole>& all, Convert convert) {
  std::vector<std::invoke_result_t<Convert, const Whole&>> converted;
  converted.reserve(all.size());
  for (const Whole& one : all) converted.push_back(convert(one));
  return converted;
}

class WorkUnderWay final : public c10d::Work {
 public:
  WorkUnderWay(c10d::OpType type, WorkPtr host, Tensors results, std::function<void()> finish)
      : Work(-1, type),
        host_(std::move(host)),
        results_(std::move(results)),
        finish_(std::move(finish)) {}

  bool isCompleted() override { return host_->isCompleted(); }
  bool isSuccess() const override { return host_->isSuccess(); }
  std::exception_ptr exception() const override { return host_->exception(); }
  int sourceRank() const override { return host_->sourceRank(); }
  std::vector<at::Tensor> result() override { return results_; }
  void abort() override { host_->abort(); }
  void synchronize() override { (void)wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool ended = host_->wait(timeout);
    std::call_once(once_, finish_);
    return ended;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    synchronize();
    return ready(results_);
  }

 private:
  WorkPtr host_;
  Tensors results_;
  std::function<void()> finish_;
  std::once_flag once_;
};

}  // namespace

bool crosses(const at::Tensor& tensor) {
  if (sim::card_of(tensor.device())->mode() == sim::Mode::compute) return true;
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) &&
         tensor.numel() <= sim::kMostKnown;
}

bool cross(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), &crosses);
}

bool cross(const std::vector<Tensors>& lists) {
  return std::any_of(lists.begin(), lists.end(), [](const Tensors& list) { return cross(list); });
}

void forget(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) sim::forget_values(tensor);
}

void forget(const std::vector<Tensors>& lists) {
  for (const Tensors& list : lists) forget(list);
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).contiguous();
}

Tensors on_host(const Tensors& tensors) {
  return each(tensors, [](const at::Tensor& tensor) { return on_host(tensor); });
}

std::vector<Tensors> on_host(const std::vector<Tensors>& lists) {
  return each(lists, [](const Tensors& list) { return on_host(list); });
}

at::Tensor room_on_host(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
}

Tensors room_on_host(const Tensors& tensors) {
  return each(tensors, [](const at::Tensor& tensor) { return room_on_host(tensor); });
}

std::vector<Tensors> room_on_host(const std::vector<Tensors>& lists) {
  return each(lists, [](const Tensors& list) { return room_on_host(list); });
}

void bring_back(const at::Tensor& from, const at::Tensor& to) {
  const at::AutoDispatchBelowADInplaceOrView unseen;
  to.copy_(from);
}

void bring_back(const Tensors& from, const Tensors& to) {
  for (std::size_t i = 0; i < to.size(); ++i) bring_back(from[i], to[i]);
}

void bring_back(const std::vector<Tensors>& from, const std::vector<Tensors>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) bring_back(from[i], to[i]);
}

WorkPtr under_way(c10d::OpType type, WorkPtr host, Tensors results, std::function<void()> finish) {
  return c10::make_intrusive<WorkUnderWay>(type, std::move(host), std::move(results),
                                           std::move(finish));
}

}  // namespace headroom::parallel::detail
