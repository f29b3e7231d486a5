// Shapes of LibTorch's structured operators in a Python process. There torch has put Meta kernels
// written in Python, slow ones, before those of C++.
//
// A structured operator, "aten::mul.Tensor" or "aten::mul_.Tensor", that C++ composes tells the
// shapes of its results, makes them, and calls the form that writes into them, "aten::mul.out". Of
// tensors without data there is nothing more to be done: that form gives them back as they are.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace headroom::sim::detail {

// Once a process, with the backend.
void register_structured();

// While it lives, structured operators that this thread calls over tensors without data run so.
class StructuredScope {
 public:
  // The operator whose kernel is about to be called.
  explicit StructuredScope(const c10::OperatorHandle& handle);
  ~StructuredScope();
  StructuredScope(const StructuredScope&) = delete;
  StructuredScope& operator=(const StructuredScope&) = delete;

 private:
  std::string_view before_;
  c10::impl::IncludeDispatchKeyGuard every_call_;
};

}  // namespace headroom::sim::detail
