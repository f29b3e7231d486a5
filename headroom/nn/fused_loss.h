// A linear head and its cross entropy in one, without ever having all logits. The forward pass
// takes a block of rows at a time, computes its logits and its loss, turns the logits into their
// gradient in place, and adds what they give to the gradients of states and weight. The backward
// pass only multiplies these by the incoming gradient, in place. So there are three matrix
// products, as in the plain loss (chunked_loss.h has four), and only a block's logits are alive at
// a time. The first block is larger: the gradient of the weight has no values yet, and its memory
// holds the block's logits.
//
//   const Tensor loss = fused_cross_entropy({.weight = lm_head->weight}, states, labels);
//   loss.backward();
//
// Softmax and loss are computed in float. Weights in half precision have a gradient in half
// precision, rounded once a block; the gradient of a float32 weight under autocast is summed in
// float32. A frozen weight, or states without a gradient, need one matrix product less; without
// grad mode there is only the loss. The gradients exist from the forward pass on.
//
// The backward pass of one result runs once, even with retain_graph, and has no second derivatives.
// Threads: as for any operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace headroom::nn {

struct FusedHead {
  at::Tensor weight;     // [classes, width]
  at::Tensor bias = {};  // undefined: none
  // Turns the product into the logits: an adapter, a cap. May be empty. It runs once a block, with
  // a graph of its own, and changes nothing in place.
  std::function<at::Tensor(const at::Tensor& states, at::Tensor product)> after = {};
  // The parameters that `after` uses, or that a follower of the weight uses (libtorch/follow.h):
  // the two matrices of LoRA. A parameter that is missing here gets no gradient.
  std::vector<at::Tensor> parameters = {};
};

struct FusedLossOptions {
  // Per block. 0: a part of all rows, at most 1024, so that a linear head's blocks take less than a
  // tenth of the memory of the plain loss. The first block may have more rows, and takes no more
  // memory beside the gradients.
  std::int64_t rows = 0;
  std::int64_t ignored = -100;  // a label that does not count
  double smoothing = 0;         // label smoothing, from 0 to 1
  bool sum = false;             // the sum over the counted labels instead of their mean
};

// States are [..., width], labels int64 [...]. Returns the loss in float (of float64 states in
// float64); like cross_entropy's the mean is NaN if no label counts. Throws UsageError.
[[nodiscard]] at::Tensor fused_cross_entropy(const FusedHead& head, const at::Tensor& states,
                                             const at::Tensor& labels,
                                             const FusedLossOptions& options = {});

}  // namespace headroom::nn
