// Activation checkpointing of torch::nn modules as they are, with batch norm.
//
//   torch::nn::Sequential net(...);
//   Tensor y = checkpointed_sequential(Recompute::nonreentrant, *net, x, 4);
//
//   Tensor z = checkpointed(Recompute::nonreentrant, *block,
//                           [&](const Tensor& x) { return block->forward(x); }, y);
//
// A BatchNorm or InstanceNorm (1d, 2d or 3d) updates its running statistics once in a step, as
// without checkpointing. (PyTorch in Python updates them twice.) Other modules with values of this
// kind must ask `recomputing()`. Like any input, that of a part must not be changed in place: a
// part must not begin with a ReLU that works in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>

#include "headroom/nn/checkpoint.h"

namespace torch::nn {
class Module;
class SequentialImpl;
}  // namespace torch::nn

namespace headroom::nn {

// For a part that runs `module`, whose norms, however deep, are treated as above. The module
// must live until the backward pass has run; until then no other thread may use it.
[[nodiscard]] at::Tensor checkpointed(Recompute how, torch::nn::Module& module,
                                      const std::function<at::Tensor(const at::Tensor&)>& part,
                                      const at::Tensor& x);

// torch.utils.checkpoint.checkpoint_sequential: splits the modules into this many segments of equal
// length and checkpoints each but the last, which also has the modules that are left over. The
// modules take and return one tensor each. Throws UsageError unless each segment has a module.
[[nodiscard]] at::Tensor checkpointed_sequential(Recompute how, torch::nn::SequentialImpl& net,
                                                 const at::Tensor& x, std::size_t segments);

}  // namespace headroom::nn
