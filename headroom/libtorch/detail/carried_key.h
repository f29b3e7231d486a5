// The dispatch key that followed weights carry (follow.h). set_data would give the tensor the keys
// of its new data, and refuses tensors of other keys.
#pragma once

#include <c10/core/TensorImpl.h>

namespace headroom::libtorch::detail {

// LibTorch's key for wrappers in its own tests, above autograd and autocast: nothing else uses it.
inline constexpr c10::DispatchKey kCarriedKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void carry(c10::TensorImpl& tensor, bool wanted);

// Takes the key off, and gives it back with what follows the weight.
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
