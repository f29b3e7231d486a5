#include "headroom/nn/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/nn/detail/frame.h"
#include "headroom/nn/detail/run_state.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using detail::Frame;
using detail::Part;
using detail::RunState;

// ---- Reentrant: one node of the graph, which builds an inner graph in the backward pass ----

struct Kept : torch::CustomClassHolder {
  Kept(Part function, const Tensors& inputs) : part(std::move(function)), state(inputs) {}
  const Part part;
  RunState state;
};

struct Reentrant : torch::autograd::Function<Reentrant> {
  using Context = torch::autograd::AutogradContext;
  using Variables = torch::autograd::variable_list;

  static Variables forward(Context* context, at::TensorList inputs,
                           const c10::intrusive_ptr<Kept>& kept) {
    context->save_for_backward(inputs.vec());
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    Variables outputs = kept->part(inputs.vec());  // apply() has disabled grad mode
    kept->state.ran();
    return outputs;
  }

  static Variables backward(Context* context, const Variables& gradients) {
    if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid())
      throw UsageError(expectation("checkpointed", "a whole backward pass for Recompute::reentrant",
                                   "gradients of chosen tensors, as from autograd::grad()",
                                   "Recompute::nonreentrant"));
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data.at("kept").toCapsule());
    const Tensors inputs = cut_off(context->get_saved_variables());
    const Tensors outputs = again(*kept, inputs);
    Tensors roots, gradients_of_roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      gradients_of_roots.push_back(gradients[i]);
    }
    if (roots.empty())
      throw UsageError(expectation("checkpointed", "a part whose result needs a gradient",
                                   "one without", "this part without checkpointing"));
    torch::autograd::backward(roots, gradients_of_roots);
    Variables result;
    for (const Tensor& input : inputs) result.push_back(input.grad());
    result.emplace_back();  // for `kept`
    return result;
  }

 private:
  static Tensors cut_off(const Variables& saved) {
    Tensors inputs;
    for (const Tensor& x : saved) inputs.push_back(x.detach().set_requires_grad(x.requires_grad()));
    return inputs;
  }

  static Tensors again(const Kept& kept, const Tensors& inputs) {
    const RunState::Replay replay(kept.state);
    return kept.part(inputs);
  }
};

// A graph node takes no undefined tensors, so they are left out and put back inside.
Tensors reentrant(const Part& part, const Tensors& inputs) {
  std::vector<bool> there;
  Tensors defined;
  for (const Tensor& input : inputs) {
    there.push_back(input.defined());
    if (input.defined()) defined.push_back(input);
  }
  const Part of_defined = [part, there](const Tensors& given) {
    Tensors all;
    std::size_t next = 0;
    for (const bool is_there : there) all.push_back(is_there ? given[next++] : Tensor());
    return part(all);
  };
  return Reentrant::apply(at::TensorList(defined), c10::make_intrusive<Kept>(of_defined, defined));
}

}  // namespace

bool recomputing() {
  return RunState::Replay::is_running();
}

Tensors checkpointed(Recompute how, const Part& part, const Tensors& inputs) {
  if (how == Recompute::none || !at::GradMode::is_enabled()) return part(inputs);
  if (how == Recompute::reentrant) return reentrant(part, inputs);
  return std::make_shared<Frame>(part, inputs, how == Recompute::selective)->run(inputs);
}

Tensor checkpointed(Recompute how, const std::function<Tensor(const Tensor&)>& part,
                    const Tensor& x) {
  if (how == Recompute::none || !at::GradMode::is_enabled()) return part(x);
  const Part of_several = [part](const Tensors& inputs) { return Tensors{part(inputs[0])}; };
  return checkpointed(how, of_several, Tensors{x})[0];
}

Tensors computed_once(const Part& section, const Tensors& inputs) {
  return Frame::run_section(section, inputs);
}

}  // namespace headroom::nn
