// Headroom's Tensor::set_data. Module::to, torch::load with a device, TorchScript's `to` and
// Python's `p.data = x` all call it.
#pragma once

namespace headroom::libtorch {

// Replaces LibTorch's set_data. When it moves a tensor to or from a simulated card, the gradient
// now moves too (LibTorch would leave it behind), and a follower (follow.h) stays with its weight,
// which takes over the store of new data (stored_weight.h).
// The device decides whether a tensor may change between these devices; simulated cards allow it
// (_has_compatible_shallow_copy_type in sim/dispatch/kernels.cpp). All other calls use LibTorch's
// own set_data. Called when `sim` is registered (sim/simulate.h) and at the first follow() or
// keep_in(); a second call has no effect.
void install_set_data();

}  // namespace headroom::libtorch
