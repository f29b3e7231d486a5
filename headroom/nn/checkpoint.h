// Activation checkpointing: a part of a model keeps nothing of its inside for the backward pass,
// and runs forward once more when that needs it.
//
//   Tensor y = checkpointed(Recompute::nonreentrant, [&](const Tensor& x) { return layer(x); }, x);
//
// Both forms of torch.utils.checkpoint, with their lifetimes: which tensors are alive when is
// theirs. Random numbers and autocast are replayed, so dropout drops the same elements, and
// gradients equal those without checkpointing to the bit where kernels are deterministic.
//
// `part` must compute the same again (the nonreentrant form throws UsageError in the backward pass
// where it saves fewer or other tensors), and what it uses besides `x` must live until the backward
// pass has run: it is copied with the function.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace headroom::nn {

enum class Recompute {
  none,          // runs it plainly
  nonreentrant,  // saved tensors are thrown away, and made again at the first that is needed;
                 // computing stops at the last one (use_reentrant=False)
  reentrant,     // runs without a graph, then again with one inside backward (use_reentrant=True)
};

[[nodiscard]] at::Tensor checkpointed(Recompute how,
                                      const std::function<at::Tensor(const at::Tensor&)>& part,
                                      const at::Tensor& x);

using Tensors = std::vector<at::Tensor>;
// Likewise for a part of several tensors, of which some, but not all, may be undefined. With the
// reentrant form a tensor that needs a gradient gets none unless it is one of the inputs.
[[nodiscard]] Tensors checkpointed(Recompute how,
                                   const std::function<Tensors(const Tensors&)>& part,
                                   const Tensors& inputs);

}  // namespace headroom::nn
