#include "headroom/train/detail/stand_ins.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "headroom/libtorch/tensors_in.h"
#include "headroom/sim/tensor.h"

namespace headroom::train::detail {

using at::Tensor;

void StandIns::on_call(libtorch::OperatorCall& call) {
  bool any = false;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < call.count(); ++i) any = replace(call.argument(i)) || any;
  }
  if (any) call.set_other_device();
  call.run();
}

bool StandIns::is_elsewhere(c10::Device device) const {
  return (device.is_cuda() || device.is_privateuseone()) && device != card_;
}

bool StandIns::is_unusable(const Tensor& tensor) const {
  return tensor.defined() &&
         (is_elsewhere(tensor.device()) || (tensor.is_privateuseone() && !sim::lives(tensor)));
}

bool StandIns::has_unusable(const c10::IValue& argument) const {
  bool any = false;
  libtorch::for_each_tensor(argument,
                            [&](const Tensor& tensor) { any = any || is_unusable(tensor); });
  return any;
}

Tensor StandIns::stand_in(const Tensor& tensor) {
  auto& [original, instead] = made_[tensor.unsafeGetTensorImpl()];
  if (instead.defined()) return instead;
  original = tensor;
  const at::TensorOptions options = at::TensorOptions(card_).dtype(tensor.dtype());
  instead = at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return instead.requires_grad_(tensor.requires_grad());
}

bool StandIns::replace(c10::IValue& argument) {
  if (argument.isDevice() && is_elsewhere(argument.toDevice())) {
    argument = card_;
    return true;
  }
  if (argument.isGenerator() && is_elsewhere(argument.toGenerator().device())) {
    argument = c10::IValue();
    return true;
  }
  if (!has_unusable(argument)) return false;
  libtorch::replace_tensors(argument, [&](const Tensor& tensor) {
    return is_unusable(tensor) ? stand_in(tensor) : tensor;
  });
  return true;
}

}  // namespace headroom::train::detail
