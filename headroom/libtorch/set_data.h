// Headroom's Tensor::set_data. Module::to, torch::load with a device, TorchScript's `to` and
// Python's `p.data = x` end in it.
#pragma once

namespace headroom::libtorch {

// From now on a tensor's gradient comes along when set_data takes it to a simulated card or from
// one, where LibTorch would leave it behind, and what follows a weight (follow.h) stays with it.
// That a tensor may change between these devices at all is for the device to say, and cards say so
// (_has_compatible_shallow_copy_type in sim/detail/kernels.cpp). All other calls go LibTorch's own
// way. Done when `sim` is registered (sim/simulate.h) and at the first follow(); a second call does
// nothing.
void install_set_data();

}  // namespace headroom::libtorch
