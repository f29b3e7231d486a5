#include "headroom/memory/saved_storage.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/anomaly_mode.h>
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
  if (meta == nullptr || !meta->grad_fn_) return [] { return std::string(); };
  return [node = libtorch::WeakNodePointer(meta->grad_fn_), output = meta->output_nr_] {
    const libtorch::NodePointer made = node.lock();
    if (!made) return std::string();
    return ", which is output " + std::to_string(output) + " of " + made->name() + ",";
  };
}

void Content::check(const Tensor& tensor, const Origin& origin) const {
  const std::uint32_t now = counter_.current_version();
  TORCH_CHECK(
      now == version_,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: [",
      tensor.toString(), " ", tensor.sizes(), "]", origin(), " is at version ", now,
      "; expected version ", version_, " instead.",
      torch::autograd::AnomalyMode::is_enabled()
          ? " Hint: the backtrace further above shows the operation that failed to compute "
            "its gradient. The variable in question was changed in there or anywhere later. "
            "Good luck!"
          : " Hint: enable anomaly detection to find the operation that failed to compute "
            "its gradient, with torch.autograd.set_detect_anomaly(True).");
}

libtorch::Unpack hand_on(const Tensor& tensor) {
  const auto kept = std::make_shared<torch::autograd::SavedVariable>(tensor, /*is_output=*/false);
  return [kept] { return kept->unpack(); };
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
