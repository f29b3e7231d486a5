// The dispatch key of followed weights (follow.h). set_data would replace it by the keys of the new
// data, and refuses tensors with different keys.
#pragma once

#include <c10/core/TensorImpl.h>

namespace headroom::libtorch::detail {

// A key that LibTorch reserves for wrappers in its own tests, above autograd and autocast: no other
// code uses it.
inline constexpr c10::DispatchKey kCarriedKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void carry(c10::TensorImpl& tensor, bool wanted);

// Removes the key, and restores it together with the follower.
class WithoutKeyScope {
 public:
  explicit WithoutKeyScope(c10::TensorImpl& tensor);
  ~WithoutKeyScope();
  WithoutKeyScope(const WithoutKeyScope&) = delete;
  WithoutKeyScope& operator=(const WithoutKeyScope&) = delete;

 private:
  c10::TensorImpl& tensor_;
  const bool had_;
  c10::intrusive_ptr<c10::BackendMeta> meta_;
};

}  // namespace headroom::libtorch::detail
