// Mixed precision for a block of code, the same on sim, cuda and cpu: inside the scope LibTorch
// runs matrix products and similar operators in `type`, and keeps operators in float that need it.
//
//   {
//     const AutocastScope scope(box.device(0).type(), at::kBFloat16);
//     loss = criterion(net->forward(x), y);
//   }
//   loss.backward();  // outside, as PyTorch advises
//
// LibTorch casts each weight once and keeps the casts until the outermost scope ends. Holds for
// this thread. Scopes nest; `enabled = false` switches autocast off inside.
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

// Whether this thread runs operators of this kind of device in mixed precision now.
[[nodiscard]] bool autocasts(c10::DeviceType device);

}  // namespace headroom::libtorch
