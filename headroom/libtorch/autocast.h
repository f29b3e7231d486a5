// Mixed precision for a block of code, on sim, cuda or cpu alike: within the scope LibTorch runs
// matrix products and the like in `type`, and keeps in float what needs it.
//
//   {
//     const AutocastScope scope(box.device(0).type(), at::kBFloat16);
//     loss = criterion(net->forward(x), y);
//   }
//   loss.backward();  // outside, as PyTorch advises
//
// Weights are cast once while the outermost scope lasts; then the casts are dropped. Holds for this
// thread. Scopes nest; `enabled = false` switches autocast off within.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace headroom::libtorch {

class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device, c10::ScalarType type, bool enabled = true);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType device_;
  c10::ScalarType type_before_;
  bool enabled_before_;
};

}  // namespace headroom::libtorch
