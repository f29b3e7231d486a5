// A saved tensor as a view of its storage, which Offload looks after once, however many views of it
// are saved.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>
#include <vector>

#include "headroom/libtorch/saved_tensors.h"

namespace headroom::nn::detail {

// A strided tensor with its own data.
[[nodiscard]] bool has_plain_storage(const at::Tensor& tensor);

// The whole storage as one row of this type. Its size must be a multiple of the type's.
[[nodiscard]] at::Tensor whole_storage(const at::Tensor& tensor, at::ScalarType type);

// The place of a tensor in its storage, to find it in a storage with the same content.
class Geometry {
 public:
  explicit Geometry(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor in(const at::Tensor& other) const;

 private:
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t offset_;
  at::ScalarType type_;
};

// A storage and its content at one time.
class Content {
 public:
  explicit Content(const at::Tensor& tensor)
      : storage_(tensor.storage().getWeakStorageImpl()),
        counter_(tensor.unsafeGetTensorImpl()->version_counter()),
        version_(counter_.current_version()) {}
  // The storage still lives, and has not been changed in place since.
  [[nodiscard]] bool is_of(const at::Tensor& tensor) const {
    return !storage_.expired() && version_ == tensor._version();
  }
  [[nodiscard]] bool has_changed() const { return counter_.current_version() != version_; }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  c10::VariableVersion counter_;
  std::uint32_t version_;
};

// Keeps the tensor as the scope outside does. Without one it stays, and autograd's error says if it
// was changed in place.
[[nodiscard]] libtorch::Unpack hand_on(const at::Tensor& tensor);

[[nodiscard]] const c10::StorageImpl* storage_of(const at::Tensor& tensor);
[[nodiscard]] std::set<const c10::StorageImpl*> storages_of(const std::vector<at::Tensor>& tensors);

}  // namespace headroom::nn::detail
