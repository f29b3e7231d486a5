// Constructs a module directly on its device: tensors that the function makes without a device, or
// on the CPU, are made on `device` at once, without a copy on the host.
//
//   auto net = on(box.device(0), [] { return std::make_shared<Net>(); });
//
// With a type, weights are made in it without passing through float, like under Python's
// torch.set_default_dtype:
//
//   auto net = on(box.device(0), at::kBFloat16, [] { return std::make_shared<Net>(); });
//
// Works for sim, cuda, cpu and meta. Holds for this thread until the function returns; scopes nest.
// A tensor made like another one (`empty_like`, `x.to(torch::kHalf)`) stays on that one's device. A
// copy to the CPU inside the function, `x.cpu()`, stays on `device` too: torch::tensor({...}) fills
// on the CPU and copies, and the two look the same.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <utility>

namespace headroom::libtorch {

// The same for a block of code.
class OnDeviceScope {
 public:
  // `floats` is the type of tensors made without one, where the default type would apply (empty,
  // zeros, ones, full of a real number, rand, randn).
  explicit OnDeviceScope(c10::Device device, std::optional<c10::ScalarType> floats = {});
  ~OnDeviceScope();
  OnDeviceScope(const OnDeviceScope&) = delete;
  OnDeviceScope& operator=(const OnDeviceScope&) = delete;

 private:
  c10::Device before_;
  std::optional<c10::ScalarType> floats_before_;
  bool was_on_;
};

template <typename Function>
decltype(auto) on(c10::Device device, Function&& function) {
  const OnDeviceScope scope(device);
  return std::invoke(std::forward<Function>(function));
}

template <typename Function>
decltype(auto) on(c10::Device device, c10::ScalarType floats, Function&& function) {
  const OnDeviceScope scope(device, floats);
  return std::invoke(std::forward<Function>(function));
}

}  // namespace headroom::libtorch
