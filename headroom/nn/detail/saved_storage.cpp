#include "headroom/nn/detail/saved_storage.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace headroom::nn::detail {

using at::Tensor;

bool has_plain_storage(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_meta() && tensor.has_storage() &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor.is_inference() && !tensor.is_nested();
}

Tensor whole_storage(const Tensor& tensor, at::ScalarType type) {
  const c10::Storage& storage = tensor.storage();
  const auto count = static_cast<std::int64_t>(storage.nbytes() / c10::elementSize(type));
  return at::empty({0}, tensor.options().dtype(type)).set_(storage, 0, {count}, {1});
}

Geometry::Geometry(const Tensor& tensor)
    : sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      offset_(tensor.storage_offset()),
      type_(tensor.scalar_type()) {}

Tensor Geometry::in(const Tensor& other) const {
  return at::empty({0}, other.options().dtype(type_))
      .set_(other.storage(), offset_, sizes_, strides_);
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

}  // namespace headroom::nn::detail
