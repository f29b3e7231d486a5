// Packed activations: what autograd saves for the backward pass is kept in fewer bits, and rounded.
//
//   nn::Pack pack(net->parameters(), {.to = nn::PackTo::bf16});
//   Tensor loss;
//   {
//     const auto scope = pack.scope();
//     loss = net->forward(batch).sum();      // unmodified
//   }
//   loss.backward();
//
// The loss stays the same to the bit, and gradients are approximate. A saved number is off by at
// most 1/256 of itself in bf16. In int8 it is off by at most 1/254 of the largest among 256
// neighbours, which share a scale; a number that was half precision is then rounded to its type
// again. In a small GPT-2 gradients change by 0.3 % in bf16 and 0.7 % in
// int8, in a small convolutional net by 0.1 % and 2.4 % (norm of the difference by norm). Where a
// saved number is infinite or NaN, all numbers with the same scale come back infinite or NaN, and
// loss scaling finds them.
//
// A saved tensor is packed with its whole storage, once in a scope, however many views of it are
// saved. These stay as they are: `stays` and all views of them, small tensors, tensors that do not
// hold floating-point numbers, and those that packing would not make smaller.
//
// Unlike autograd, it does not notice if a saved tensor is changed in place before the backward
// pass: the gradients are those of the old values.
//
// What is kept is handed to the SavedTensorScope outside: in an Offload's scope, packed tensors
// wait in host memory. Checkpointed parts in the scope pack their inputs, and recompute from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/libtorch/saved_tensors.h"

namespace headroom::nn {

enum class PackTo { bf16, int8 };

struct PackOptions {
  PackTo to = PackTo::bf16;
  Bytes smallest{std::int64_t{1} << 20};  // smaller storages stay
};

class Pack {
 public:
  // `stays`: a model's parameters and buffers, looked at when a scope begins.
  explicit Pack(std::vector<at::Tensor> stays, const PackOptions& options = {});

  [[nodiscard]] libtorch::SavedTensorScope scope() const;

 private:
  std::vector<at::Tensor> stays_;
  PackOptions options_;
};

}  // namespace headroom::nn
