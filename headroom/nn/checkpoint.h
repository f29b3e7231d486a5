// Activation checkpointing: a part of a model keeps no intermediate tensors for the backward pass,
// and its forward pass runs again when the backward pass needs them.
//
//   Tensor y = checkpointed(Recompute::nonreentrant, [&](const Tensor& x) { return layer(x); }, x);
//
// Both forms of torch.utils.checkpoint, with the same tensor lifetimes. Random numbers and autocast
// are replayed, those of every device that is in use, so dropout drops the same elements, and
// gradients are bit-identical to those without checkpointing where kernels are deterministic. (The
// reentrant form lays the gradient of an input out like the input. Where it was laid out otherwise,
// a sum over it may be rounded otherwise.)
//
// Parts may be nested. Inputs are kept through the SavedTensorScope around the part
// (libtorch/saved_tensors.h), which may move them elsewhere; like other saved tensors, they must
// not be changed in place before the backward pass.
//
// The reentrant form needs a whole backward pass: under autograd::grad() and backward(inputs) it
// throws UsageError, as in PyTorch.
//
// `part` must compute the same each time; the nonreentrant form throws UsageError in the backward
// pass if it saves fewer or other tensors. The function is copied, and what it refers to besides
// `x` must live until the backward pass has run.
//
// Threads: any number of threads may run parts. The second run of a part is made by the first
// thread of the backward pass that needs one of its tensors; others wait for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace headroom::nn {

enum class Recompute {
  none,          // runs it without checkpointing
  nonreentrant,  // drops saved tensors and recomputes them when the first is needed;
                 // recomputation stops at the last one (use_reentrant=False)
  reentrant,     // runs without a graph, then again with one in backward (use_reentrant=True)
  selective,     // nonreentrant, except that sections (computed_once, below) do not run again
};

[[nodiscard]] at::Tensor checkpointed(Recompute how,
                                      const std::function<at::Tensor(const at::Tensor&)>& part,
                                      const at::Tensor& x);

using Tensors = std::vector<at::Tensor>;
// The same for a part that takes several tensors; some of them, but not all, may be undefined. The
// reentrant form computes no gradients unless one of the inputs requires one.
[[nodiscard]] Tensors checkpointed(Recompute how,
                                   const std::function<Tensors(const Tensors&)>& part,
                                   const Tensors& inputs);

// Inside a part, marks a section that costs more time than memory, such as attention:
//
//   Tensors seen = computed_once([&](const Tensors& in) -> Tensors {
//     return {at::scaled_dot_product_attention(in[0], in[1], in[2])};
//   }, {q, k, v});
//
// In the selective form the section runs once. Its results and the tensors that it saves are kept,
// through the scope around the part, and the second run of the part takes these results. Inputs
// that the section saves, and views of them, are not kept: the second run makes them again. Random
// numbers behind the section are the same as without checkpointing. Neither inputs nor results may
// be changed in place.
//
// Elsewhere the section is run like any other code: in the other forms it runs again. It belongs to
// the innermost part; when a part around that one runs again, so does the section.
[[nodiscard]] Tensors computed_once(const std::function<Tensors(const Tensors&)>& section,
                                    const Tensors& inputs);

// True while this thread runs a part again. Code that counts forward passes, such as the running
// statistics of a batch norm, must not count this one.
[[nodiscard]] bool recomputing();

}  // namespace headroom::nn
