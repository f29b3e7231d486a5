// A saved tensor as a view of its storage: SavedStorages (saved_storages.h) looks after a storage
// once, however many views of it are saved.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "headroom/libtorch/saved_tensors.h"

namespace headroom::memory {

// A strided tensor with its own data, and with nothing that only its own object knows: no subclass
// of Python, no wrapper of a function transform, no conjugate view, no weight that a store keeps.
[[nodiscard]] bool has_plain_storage(const at::Tensor& tensor);

// The place of a tensor in its storage, to find it in a storage with the same content.
class Geometry {
 public:
  explicit Geometry(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor in(const c10::Storage& storage) const;

 private:
  c10::SmallVector<std::int64_t, 5> sizes_, strides_;
  std::int64_t offset_;
  caffe2::TypeMeta type_;
};

// The whole storage as one row of bytes.
[[nodiscard]] at::Tensor as_bytes(const c10::Storage& storage);

// Which operator made a tensor, for autograd's error about one that was changed in place: gives its
// copy that place in the graph, if there still is one.
using Origin = std::function<void(const at::Tensor& copy)>;
[[nodiscard]] Origin origin_of(const at::Tensor& tensor);

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
  // Throws autograd's error if it was changed since; `tensor` is the saved one, or what replaces
  // it.
  void check(const at::Tensor& tensor, const Origin& origin) const;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  c10::VariableVersion counter_;
  std::uint32_t version_;
};

// Keeps the tensor as the scope outside does. Without one it stays, and autograd's error says if it
// was changed in place.
[[nodiscard]] libtorch::Unpack hand_on(const at::Tensor& tensor);

// How many hold the storage, this one included. Python's object for it does not count if no Python
// code refers to it any more: it stays as long as the storage.
[[nodiscard]] std::size_t holders(const c10::Storage& storage);

[[nodiscard]] const c10::StorageImpl* storage_of(const at::Tensor& tensor);
[[nodiscard]] std::set<const c10::StorageImpl*> storages_of(const std::vector<at::Tensor>& tensors);

}  // namespace headroom::memory
