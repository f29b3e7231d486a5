// Attaches a function, the follower, to one weight. Each linear layer, convolution and embedding
// that uses the weight passes its result to the follower and returns the follower's result instead.
// This changes layers whose forward() cannot be overridden: it is not virtual, and a member such as
// `torch::nn::Linear q{nullptr}` always calls its own class.
//
//   follow(net->q->weight, [=](const Use& use, at::Tensor result) {
//     return result + use.again(use.input, delta);
//   });
//
// The weight itself carries the follower, so it works on every thread and device and with every
// kind of checkpointing, and costs nothing for other tensors. It stays with the tensor when that
// moves (modules.h, Module::to), changes its type or is loaded into, and ends with the tensor. It
// runs for
//   at::linear, and matmul or addmm with weight.t(), which torch::nn::Linear runs
//   at::conv1d and at::conv2d
//   at::embedding
// Any other operator uses the weight without the follower. Of those, follow() can report products,
// convolutions and lookups: matmul with the weight as it is, mm, bmm, einsum, embedding_bag,
// index_select and the like (the list is in detail/carried_products.cpp). Views other than
// weight.t() are not followed, so their use goes unseen.
//
// Threads: call follow() while no other thread uses the weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace headroom::libtorch {

struct Use {
  enum class Kind { linear, convolution, embedding };
  Kind kind = Kind::linear;
  const at::Tensor& input;  // an embedding's indices
  // Runs the same operator on another input and weight, with the same stride, padding and so on,
  // but without a bias. Valid while the follower runs.
  const std::function<at::Tensor(const at::Tensor& input, const at::Tensor& weight)>& again;
  bool is_scaled = false;  // by addmm's alpha, as `again` does
};

using Follower = std::function<at::Tensor(const Use& use, at::Tensor result)>;

// One follower per weight: a new one replaces the old one, an empty function removes it.
// `otherwise` runs, on any thread, each time one of the other operators above uses the weight.
void follow(const at::Tensor& weight, Follower follower, std::function<void()> otherwise = {});
[[nodiscard]] bool is_followed(const at::Tensor& weight);

}  // namespace headroom::libtorch
