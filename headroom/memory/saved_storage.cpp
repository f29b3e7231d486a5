#include "headroom/memory/saved_storage.h"

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "headroom/libtorch/versions.h"

namespace headroom::memory {
namespace {

using at::Tensor;

Tensor view_of(const c10::Storage& storage, caffe2::TypeMeta type) {
  const c10::DispatchKeySet keys(
      c10::computeDispatchKey(c10::typeMetaToScalarType(type), c10::kStrided, storage.device()));
  return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, type);
}

}  // namespace

bool has_plain_storage(const Tensor& tensor) {
  constexpr auto kOfAnyTensor =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  if (tensor.layout() != at::kStrided || tensor.is_meta() || !tensor.has_storage() ||
      tensor.is_inference())
    return false;
  const c10::DispatchKeySet own = tensor.key_set() - kOfAnyTensor;
  return own == c10::DispatchKeySet(
                    c10::computeDispatchKey(tensor.scalar_type(), c10::kStrided, tensor.device()));
}

Geometry::Geometry(const Tensor& tensor)
    : sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      strides_(tensor.strides().begin(), tensor.strides().end()),
      offset_(tensor.storage_offset()),
      type_(tensor.dtype()) {}

Tensor Geometry::in(const c10::Storage& storage) const {
  Tensor tensor = view_of(storage, type_);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes_, strides_, offset_);
  return tensor;
}

Tensor as_bytes(const c10::Storage& storage) {
  Tensor bytes = view_of(storage, caffe2::TypeMeta::Make<std::uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(storage.nbytes())});
  return bytes;
}

// Without making a node for what has none yet, such as a leaf.
Origin origin_of(const Tensor& tensor) {
  const auto* const meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta == nullptr || !meta->grad_fn_) return [](const Tensor&) {};
  return [node = libtorch::WeakNodePointer(meta->grad_fn_),
          output = meta->output_nr_](const Tensor& copy) {
    if (const libtorch::NodePointer made = node.lock())
      torch::autograd::impl::set_gradient_edge(copy, {made, output});
  };
}

// A saved variable without hooks notices the change, and its text is that of this LibTorch.
void Content::check(const Tensor& tensor, const Origin& origin) const {
  const std::uint32_t now = counter_.current_version();
  if (now == version_) return;
  const libtorch::OuterScope no_scope(nullptr);
  const bool no_hooks = at::SavedTensorDefaultHooks::set_tracing(true);
  torch::autograd::impl::set_version_counter(tensor, c10::VariableVersion(version_));
  origin(tensor);
  const torch::autograd::SavedVariable saved(tensor, /*is_output=*/false);
  at::SavedTensorDefaultHooks::set_tracing(no_hooks);
  for (std::uint32_t version = version_; version < now; ++version)
    torch::autograd::impl::bump_version(tensor);
  (void)saved.unpack();
}

libtorch::Unpack hand_on(const Tensor& tensor) {
  const auto kept = std::make_shared<torch::autograd::SavedVariable>(tensor, /*is_output=*/false);
  return [kept] { return kept->unpack(); };
}

std::size_t holders(const c10::Storage& storage) {
  const c10::impl::PyObjectSlot* const python = storage.unsafeGetStorageImpl()->pyobj_slot();
  return storage.use_count() - (python->has_unique_reference() ? 1 : 0);
}

const c10::StorageImpl* storage_of(const Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::set<const c10::StorageImpl*> storages_of(const std::vector<Tensor>& tensors) {
  std::set<const c10::StorageImpl*> storages;
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && tensor.has_storage()) storages.insert(storage_of(tensor));
  return storages;
}

}  // namespace headroom::memory
