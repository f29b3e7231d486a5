// In the child that prices plans: tensors of the parent's devices that the loss holds, such as
// class weights, a mask or another network, cannot be used there. Each is replaced by one of the
// same shape without values on the child's card, where it is counted, as soon as an operator gets
// it. So are the parent's devices (`torch::randn({8}, device)`) and generators.
//
//   StandIns stand_ins(card);
//   const libtorch::CallScope scope(stand_ins, libtorch::CallScope::Of::all);
//
// Threads: that of the dry run, and autograd's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "headroom/libtorch/operator_calls.h"

namespace headroom::train::detail {

class StandIns final : public libtorch::CallObserver {
 public:
  explicit StandIns(c10::Device card) : card_(card) {}
  void on_call(libtorch::OperatorCall& call) override;

 private:
  [[nodiscard]] bool is_elsewhere(c10::Device device) const;
  [[nodiscard]] bool is_unusable(const at::Tensor& tensor) const;
  [[nodiscard]] bool has_unusable(const c10::IValue& argument) const;
  [[nodiscard]] at::Tensor stand_in(const at::Tensor& tensor);
  [[nodiscard]] bool replace(c10::IValue& argument);

  const c10::Device card_;
  std::mutex mutex_;
  // By the tensor that it stands for, which is held so that its address stays its own.
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> made_;
};

}  // namespace headroom::train::detail
