// The differences between the versions of LibTorch that Headroom builds with (2.11 to 2.15). All
// other code of the engine is the same for each of them.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace headroom::libtorch {

inline constexpr int kMinor = TORCH_VERSION_MINOR;  // 15 for LibTorch 2.15

// How autograd holds its nodes: std::shared_ptr until 2.12, c10::intrusive_ptr since 2.13.
using NodePointer = decltype(torch::autograd::Edge::function);
using WeakNodePointer = decltype(torch::autograd::AutogradMeta::grad_accumulator_);

template <typename Node, typename... Arguments>
[[nodiscard]] NodePointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<Node>(std::forward<Arguments>(arguments)...);
  else
    return c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
}

}  // namespace headroom::libtorch
