// The metadata that a weight carries beside its values: the function that follows its uses
// (follow.h), and the store that keeps its values (stored_weight.h). A dispatch key on the weight
// sends its operators to detail/carried_operators.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <functional>
#include <memory>
#include <utility>

#include "headroom/libtorch/follow.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::libtorch::detail {

// A key that LibTorch reserves for wrappers in its own tests, above autograd and autocast: no other
// code uses it.
inline constexpr c10::DispatchKey kCarriedKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

struct Following {
  Follower follower;
  std::function<void()> otherwise;
};

struct Carried final : c10::BackendMeta {
  Carried(std::shared_ptr<const Following> follows, std::shared_ptr<Store> kept, bool is_transposed)
      : following(std::move(follows)), store(std::move(kept)), transposed(is_transposed) {}
  const std::shared_ptr<const Following> following;  // may be null
  const std::shared_ptr<Store> store;                // may be null
  const bool transposed;                             // the tensor is weight.t()
};

// Null for other tensors.
[[nodiscard]] const Carried* carried(const at::Tensor& tensor);
// Null for a tensor with values of its own, also for an undefined one.
[[nodiscard]] Store* stored(const at::Tensor& tensor);

// Replaces what a tensor carries. With neither of the two it becomes a plain tensor.
void attach(const at::Tensor& to, std::shared_ptr<const Following> following,
            std::shared_ptr<Store> store, bool transposed = false);

// Around set_data, which would replace the key by those of the new data, and refuses tensors with
// different keys. Afterwards the tensor has its own follower and the store of the new data.
class SetDataScope {
 public:
  SetDataScope(const at::TensorBase& tensor, const at::TensorBase& data);
  ~SetDataScope();
  SetDataScope(const SetDataScope&) = delete;
  SetDataScope& operator=(const SetDataScope&) = delete;

 private:
  struct Plain {
    explicit Plain(const at::TensorBase& tensor);
    void restore();
    const at::TensorBase& tensor;
    c10::intrusive_ptr<c10::BackendMeta> meta;  // null for a tensor without the key
  };
  Plain tensor_, data_;
};

}  // namespace headroom::libtorch::detail
