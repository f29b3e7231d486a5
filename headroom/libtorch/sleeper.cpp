#include "headroom/libtorch/sleeper.h"

#include <utility>

#include "headroom/libtorch/detail/generic_mode.h"
#include "headroom/libtorch/tensors_in.h"

namespace headroom::libtorch {
namespace {

struct Keys final : c10::TensorImpl {
  static c10::DispatchKeySet& of(c10::TensorImpl& tensor) { return tensor.*(&Keys::key_set_); }
};

}  // namespace

bool can_sleep(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->get_backend_meta() == nullptr && !sleeps(tensor);
}

void put_to_sleep(const at::Tensor& tensor, c10::intrusive_ptr<Sleeper> sleeper) {
  detail::register_generic_mode();
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_backend_meta(std::move(sleeper));
  Keys::of(impl) = Keys::of(impl).add(detail::kGenericMode);
}

bool sleeps(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(detail::kGenericMode);
}

void wake(const at::Tensor& tensor) {
  if (!sleeps(tensor)) return;
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto meta = impl.get_backend_meta_intrusive_ptr();
  if (auto* const sleeper = dynamic_cast<Sleeper*>(meta.get())) sleeper->wake();
  Keys::of(impl) = Keys::of(impl).remove(detail::kGenericMode);
  impl.set_backend_meta(nullptr);
}

void detail::wake_arguments(const torch::jit::Stack& stack, std::size_t arguments) {
  for (const c10::IValue& value : torch::jit::last(stack, arguments))
    for_each_tensor(value, [](const at::Tensor& tensor) { wake(tensor); });
}

}  // namespace headroom::libtorch
