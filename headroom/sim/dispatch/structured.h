// Shapes of LibTorch's structured operators in a Python process, where torch has put slow Meta
// kernels written in Python before those of C++.
//
// A structured operator that C++ composes, "aten::mul.Tensor" or "aten::mul_.Tensor", computes the
// shapes of its results, makes them, and calls the form that writes into them, "aten::mul.out". For
// tensors without data nothing else remains: that form returns them unchanged.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace headroom::sim::detail {

// Call once per process, with the backend.
void register_structured();

// While it lives, this thread runs structured operators over tensors without data that way.
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
