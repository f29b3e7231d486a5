#include "headroom/nn/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/nn/detail/replay.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using detail::Surroundings;
using Part = std::function<Tensor(const Tensor&)>;

// ---- Reentrant: a node of the graph, with a graph inside ----

struct Kept : torch::CustomClassHolder {
  Kept(Part function, c10::Device device) : part(std::move(function)), surroundings(device) {}
  const Part part;
  const Surroundings surroundings;
};

struct Reentrant : torch::autograd::Function<Reentrant> {
  using Context = torch::autograd::AutogradContext;
  using Variables = torch::autograd::variable_list;

  static Tensor forward(Context* context, const Tensor& x, const c10::intrusive_ptr<Kept>& kept) {
    context->save_for_backward({x});
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return kept->part(x);  // apply() has switched the graph off
  }

  static Variables backward(Context* context, const Variables& gradients) {
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data.at("kept").toCapsule());
    const Tensor saved = context->get_saved_variables()[0];
    const Tensor input = saved.detach().set_requires_grad(saved.requires_grad());
    const Tensor output = again(*kept, input);
    if (!output.requires_grad())
      throw UsageError(expectation("checkpointed", "a part whose result needs a gradient",
                                   "one without", "this part without checkpointing"));
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), Tensor()};
  }

 private:
  static Tensor again(const Kept& kept, const Tensor& input) {
    const Surroundings::Replay replay(kept.surroundings);
    const at::AutoGradMode with_graph(true);
    return kept.part(input);
  }
};

// ---- Non-reentrant: what is saved is thrown away, and made again at the first that is needed ----

// Everything that was to be kept has been computed again.
struct Complete {};

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(Part part, const Tensor& x)
      : part_(std::move(part)), input_(x), surroundings_(x.device()) {}

  Tensor run() {
    const libtorch::SavedTensorScope scope(
        [frame = shared_from_this()](const Tensor&) { return frame->place(); });
    return part_(input_);
  }

 private:
  struct Place {
    std::optional<Tensor> tensor;
  };

  libtorch::Unpack place() {
    auto place = std::make_shared<Place>();
    places_.push_back(place);
    return [frame = shared_from_this(), place] {
      if (!place->tensor) frame->recompute();
      if (!place->tensor)
        throw UsageError(
            expectation("checkpointed", "a part that saves the same tensors each time it runs",
                        "one with fewer", "a part whose course does not depend on outside state"));
      return *std::exchange(place->tensor, std::nullopt);
    };
  }

  void recompute() {
    std::size_t next = 0;
    const auto keep = [this, &next](const Tensor& tensor) -> libtorch::Unpack {
      if (const std::shared_ptr<Place> place = places_[next].lock()) place->tensor = tensor;
      if (++next == places_.size()) throw Complete();
      return [tensor] { return tensor; };
    };
    const Surroundings::Replay replay(surroundings_);
    const at::AutoGradMode with_graph(true);
    try {
      const libtorch::SavedTensorScope scope(keep);
      (void)part_(input_);
    } catch (const Complete&) {
    }
  }

  const Part part_;
  const Tensor input_;
  const Surroundings surroundings_;
  std::vector<std::weak_ptr<Place>> places_;  // one for each saved tensor, in their order
};

}  // namespace

Tensor checkpointed(Recompute how, const Part& part, const Tensor& x) {
  if (how == Recompute::none || !at::GradMode::is_enabled()) return part(x);
  if (how == Recompute::reentrant)
    return Reentrant::apply(x, c10::make_intrusive<Kept>(part, x.device()));
  return std::make_shared<Frame>(part, x)->run();
}

}  // namespace headroom::nn
