// A function that follows every use of one weight: it is given the result of each linear layer,
// convolution and embedding that is computed with it, and its answer takes the result's place. So
// layers can be changed whose forward() cannot: it is not virtual, and a member such as
// `torch::nn::Linear q{nullptr}` keeps calling the class that it names.
//
//   follow(net->q->weight, [=](const Use& use, at::Tensor result) {
//     return result + use.again(use.input, delta);
//   });
//
// The weight itself carries what follows it, so any thread, device and kind of checkpointing will
// do, and other tensors cost nothing. It stays with the tensor where that moves (modules.h,
// Module::to), changes its type or is loaded into, and ends with it. A use is
//   at::linear, and matmul or addmm with weight.t(), which is what torch::nn::Linear runs
//   at::conv1d and at::conv2d
//   at::embedding
// Any other operator takes the weight as it is, and nothing follows.
//
// Threads: follow() while nothing else uses the weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace headroom::libtorch {

struct Use {
  enum class Kind { linear, convolution, embedding };
  Kind kind = Kind::linear;
  const at::Tensor& input;  // an embedding's indices
  // The same operator over another input and weight, with the same stride, padding and so on, but
  // without a bias. Holds while the function runs.
  const std::function<at::Tensor(const at::Tensor& input, const at::Tensor& weight)>& again;
};

using Follower = std::function<at::Tensor(const Use& use, at::Tensor result)>;

// One a weight: another one takes its place, an empty one ends it.
void follow(const at::Tensor& weight, Follower follower);
[[nodiscard]] bool is_followed(const at::Tensor& weight);

}  // namespace headroom::libtorch
