#include "headroom/libtorch/detail/relocation.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/autograd/variable.h>

#include <typeinfo>

#include "headroom/base/error.h"
#include "headroom/libtorch/versions.h"

namespace headroom::libtorch::detail {
namespace {

at::Tensor all_bytes(const c10::Storage& storage) {
  const c10::DispatchKey key =
      c10::computeDispatchKey(c10::ScalarType::Byte, c10::kStrided, storage.device());
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), caffe2::TypeMeta::Make<std::uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(storage.nbytes())});
  return bytes;
}

[[noreturn]] void refuse(const std::string& name, const char* what, const char* to_try) {
  throw UsageError(
      expectation("move", "tensors that own plain memory", name + ", which is " + what, to_try));
}

void check(const std::string& name, const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (typeid(impl) != typeid(c10::TensorImpl) || !impl.has_storage())
    refuse(name, "sparse, quantised, nested or wrapped", "making it dense first");
  if (!tensor.is_leaf())
    refuse(name, "the result of a computation that autograd remembers", "detach() it first");
}

// Tensor::set_data does this too: the node that accumulates gradients remembers their device.
void forget_accumulator(const at::Tensor& tensor) {
  if (torch::autograd::impl::get_autograd_meta(tensor) != nullptr)
    torch::autograd::impl::set_grad_accumulator(tensor, WeakNodePointer(NodePointer()));
}

}  // namespace

c10::Device concrete(c10::Device device) {
  return at::empty({0}, c10::TensorOptions(device).dtype(at::kByte)).device();
}

c10::Storage blank(std::size_t bytes, c10::Device device) {
  return at::empty({static_cast<std::int64_t>(bytes)}, c10::TensorOptions(device).dtype(at::kByte))
      .storage();
}

c10::Storage copied(const c10::Storage& storage, c10::Device device) {
  const at::Tensor from = all_bytes(storage);
  const at::Tensor to = at::empty(from.sizes(), c10::TensorOptions(device).dtype(at::kByte));
  to.copy_(from);
  return to.storage();
}

void Relocation::add(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || !seen_.insert(tensor.unsafeGetTensorImpl()).second) return;
  check(name, tensor);
  if (tensor.device() != device_ || values_ == Values::dropped) tensors_.push_back(tensor);
  add(name + ".grad", tensor.grad());
}

void Relocation::copy() {
  const c10::AutoGradMode no_grad(false);
  for (const at::Tensor& tensor : tensors_) {
    const c10::StorageImpl* const old = tensor.storage().unsafeGetStorageImpl();
    if (copies_.contains(old)) continue;
    copies_.emplace(old, values_ == Values::kept ? copied(tensor.storage(), device_)
                                                 : blank(old->nbytes(), device_));
  }
}

void Relocation::commit() noexcept {
  for (const at::Tensor& tensor : tensors_) {
    c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    // Detached tensors refuse metadata changes, but only to catch mistakes.
    const bool refuses = !impl->allow_tensor_metadata_change();
    impl->set_allow_tensor_metadata_change(true);
    const c10::Storage& there = copies_.at(tensor.storage().unsafeGetStorageImpl());
    impl->_change_backend_component_keys(device_);
    impl->set_storage_keep_dtype(there);
    impl->set_allow_tensor_metadata_change(!refuses);
    if (!impl->is_inference()) impl->bump_version();
    forget_accumulator(tensor);
  }
}

}  // namespace headroom::libtorch::detail
