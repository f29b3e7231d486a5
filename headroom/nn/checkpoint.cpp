#include "headroom/nn/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/nn/detail/run_state.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using detail::RunState;
using Part = std::function<Tensors(const Tensors&)>;

// ---- Reentrant: one node of the graph, which builds an inner graph in the backward pass ----

struct Kept : torch::CustomClassHolder {
  Kept(Part function, const Tensors& inputs) : part(std::move(function)), state(inputs) {}
  const Part part;
  const RunState state;
};

struct Reentrant : torch::autograd::Function<Reentrant> {
  using Context = torch::autograd::AutogradContext;
  using Variables = torch::autograd::variable_list;

  static Variables forward(Context* context, at::TensorList inputs,
                           const c10::intrusive_ptr<Kept>& kept) {
    context->save_for_backward(inputs.vec());
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->part(inputs.vec());  // apply() has disabled grad mode
  }

  static Variables backward(Context* context, const Variables& gradients) {
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

// ---- Non-reentrant: drops saved tensors, and recomputes them when the first is needed ----

// Thrown to stop recomputation, once all saved tensors have been recomputed.
struct Complete {};

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(Part part, const Tensors& inputs) : part_(std::move(part)), state_(inputs) {
    for (const Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  Tensors run(const Tensors& inputs) {
    const libtorch::SavedTensorScope scope(
        [frame = shared_from_this()](const Tensor& tensor) { return frame->place_for(tensor); });
    return part_(inputs);
  }

 private:
  struct Place {
    std::optional<Tensor> tensor;
  };

  // Describes a dropped tensor, to check the recomputed one against.
  struct Likeness {
    explicit Likeness(const Tensor& of)
        : sizes(of.is_nested() ? std::vector<std::int64_t>() : of.sizes().vec()),
          type(of.scalar_type()),
          device(of.device()) {}
    bool operator==(const Likeness&) const = default;

    std::vector<std::int64_t> sizes;
    c10::ScalarType type;
    c10::Device device;
  };

  [[noreturn]] static void refuse(const char* received) {
    throw UsageError(expectation("checkpointed",
                                 "a part that saves the same tensors each time it runs", received,
                                 "a part whose course does not depend on outside state"));
  }

  libtorch::Unpack place_for(const Tensor& tensor) {
    auto place = std::make_shared<Place>();
    places_.push_back(place);
    likenesses_.emplace_back(tensor);
    return [frame = shared_from_this(), place] {
      if (!place->tensor) frame->recompute();
      if (!place->tensor) refuse("one with fewer");
      return *std::exchange(place->tensor, std::nullopt);
    };
  }

  void recompute() {
    Tensors inputs;
    for (const auto& input : inputs_) inputs.push_back(input.unpack());
    std::size_t next = 0;
    const auto keep = [this, &next](const Tensor& tensor) -> libtorch::Unpack {
      if (Likeness(tensor) != likenesses_[next]) refuse("one of another shape, type or device");
      if (const std::shared_ptr<Place> place = places_[next].lock()) place->tensor = tensor;
      if (++next == places_.size()) throw Complete();
      return [tensor] { return tensor; };
    };
    const RunState::Replay replay(state_);
    try {
      const libtorch::SavedTensorScope scope(keep);
      (void)part_(inputs);
    } catch (const Complete&) {
    }
  }

  const Part part_;
  const RunState state_;
  // Saved like any tensor of the graph: through the hooks around this part.
  std::vector<torch::autograd::SavedVariable> inputs_;
  // One per saved tensor, in order.
  std::vector<std::weak_ptr<Place>> places_;
  std::vector<Likeness> likenesses_;
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
  return std::make_shared<Frame>(part, inputs)->run(inputs);
}

Tensor checkpointed(Recompute how, const std::function<Tensor(const Tensor&)>& part,
                    const Tensor& x) {
  if (how == Recompute::none || !at::GradMode::is_enabled()) return part(x);
  const Part of_several = [part](const Tensors& inputs) { return Tensors{part(inputs[0])}; };
  return checkpointed(how, of_several, Tensors{x})[0];
}

}  // namespace headroom::nn
