#include "headroom/libtorch/settle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/versions.h"

namespace headroom::libtorch {
namespace {

// A node that does nothing, on the thread of its input's device. The engine takes nodes with higher
// numbers first, so this one comes after all that wait there.
struct Last final : torch::autograd::Node {
  explicit Last(const at::Tensor& input) : Node(/*sequence_nr=*/0) { add_input_metadata(input); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

void pass_through(c10::Device device) {
  const at::Tensor nothing = at::empty({0}, at::TensorOptions(device));
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::Edge(make_node<Last>(nothing), 0)}, {nothing},
      /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace

// No node of a pass that failed begins any more. One that still ran may have handed on gradients to
// another device's queue, behind which the second round comes.
void settle(const std::vector<c10::Device>& devices) {
  // Its pass would start the engine's threads, after which nothing can be priced in a child.
  if (is_engine_unused()) return;
  wait_for_failed_passes();
  for (int round = 0; round < 2; ++round)
    for (const c10::Device device : devices)
      if (!device.is_cpu() && !device.is_meta()) pass_through(device);
}

}  // namespace headroom::libtorch
