// Headroom's Tensor::set_data. Module::to, torch::load with a device, TorchScript's `to` and
// Python's `p.data = x` end in it.
#pragma once

namespace headroom::libtorch {

// From now on set_data changes the device of a tensor between a simulated card and any other device
// as it does between the CPU and CUDA; LibTorch refuses ("incompatible tensor type") for device
// types that it does not know by name. The tensor's gradient comes along, which LibTorch would
// leave behind. And what follows a weight (follow.h) stays with it. All other calls go LibTorch's
// own way. Done when `sim` is registered (sim/simulate.h) and at the first follow(); a second call
// does nothing.
void install_set_data();

}  // namespace headroom::libtorch
