// Gradients of one parameter or another get too long: all are made shorter by the same factor.
//
//   loss.backward();
//   optim::clip_gradients(optimizer->parameters(), 1.0);
//   optimizer->step();
//
// torch.nn.utils.clip_grad_norm_ of PyTorch 2.11 with its temporaries: one number a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace headroom::optim {

struct ClipOptions {
  double order = 2;  // of the norm; infinity is the largest element
  // Throws InputError where the norm is infinite or no number; else gradients become the same. To
  // know, it waits for the device.
  bool refuse_non_finite = false;
  bool foreach = true;  // all gradients of a device and type at once
};

// Of all gradients together, at most `longest`. Returns the norm before.
at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double longest,
                          const ClipOptions& options = {});

}  // namespace headroom::optim
