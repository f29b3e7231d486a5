// Clips gradients. By global norm: when the norm of all gradients is too large, all of them are
// scaled down by the same factor. By value: each element on its own.
//
//   loss.backward();
//   optim::clip_gradients(optimizer->parameters(), 1.0);
//   optimizer->step();
//
// torch.nn.utils.clip_grad_norm_ and clip_grad_value_ of PyTorch 2.11, with their temporaries: one
// number per gradient, and none. Neither waits for the device. Clip before Optimizer::commit(): if
// memory runs out here, no parameter has changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace headroom::optim {

struct ClipOptions {
  double order = 2;  // of the norm; infinity: the largest absolute element
  // Throws InputError if the norm is infinite or NaN; this check waits for the device. Without it,
  // a NaN norm makes all gradients NaN; an infinite one makes them 0, or NaN where infinite.
  bool refuse_non_finite = false;
  bool foreach = true;  // all gradients of a device and type at once
};

// Clips the norm of all gradients together to `max_norm`. Returns the norm before clipping.
// Throws UsageError unless max_norm is at least 0.
at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double max_norm,
                          const ClipOptions& options = {});

// The same norm, without clipping; and the clipping alone, where `norm` is that of gradients among
// which these are, such as those of a model on several devices.
[[nodiscard]] at::Tensor gradient_norm(const std::vector<at::Tensor>& parameters,
                                       const ClipOptions& options = {});
void clip_to_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                  const at::Tensor& norm, const ClipOptions& options = {});

// Limits each element to [-limit, limit]. Throws UsageError unless the limit is above 0.
void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double limit,
                             bool foreach = true);

}  // namespace headroom::optim
