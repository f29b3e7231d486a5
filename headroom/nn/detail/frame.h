// The nonreentrant form of checkpointing (nn/checkpoint.h): a run of a part that drops the tensors
// that autograd saves, and runs the part again when the backward pass needs the first of them.
//
// The n-th tensor that the second run saves takes the place of the n-th that the first run dropped.
// A section that is computed once saves nothing in the second run: its inputs take the places of
// the tensors that it dropped, and its results and the other tensors that it saved were kept.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/nn/detail/run_state.h"

namespace headroom::nn::detail {

using Tensors = std::vector<at::Tensor>;
using Part = std::function<Tensors(const Tensors&)>;

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  // `has_sections`: honours sections; otherwise they run like the rest of the part.
  Frame(Part part, const Tensors& inputs, bool has_sections);

  Tensors run(const Tensors& inputs);
  // Runs a section, or takes its results from the first run.
  static Tensors run_section(const Part& section, const Tensors& inputs);

 private:
  using Saved = torch::autograd::SavedVariable;

  struct Place {
    std::optional<at::Tensor> tensor;
  };

  // Describes a dropped tensor, to check the recomputed one against.
  struct Likeness {
    explicit Likeness(const at::Tensor& of);
    bool operator==(const Likeness&) const = default;

    std::vector<std::int64_t> sizes;
    c10::ScalarType type;
    c10::Device device;
  };

  // A view of a section's input.
  struct View {
    std::size_t input;
    std::vector<std::int64_t> sizes, strides;
    std::int64_t offset;  // from the input's first element
  };

  struct Section {
    struct Result {
      Saved tensor;
      bool requires_grad;
    };
    std::size_t first_place;
    std::vector<View> dropped;  // they have the places from the first one on
    std::vector<Result> results;
    libtorch::RandomState after;
  };

  // A run of a frame's part that is under way on this thread.
  struct Run {
    Frame& frame;
    const bool again;
    const libtorch::SavedTensorScope* around;      // of the first run: the scope around the part
    std::size_t next_place = 0, next_section = 0;  // of the second run
  };
  class Running;  // sets the thread's run

  libtorch::Unpack place_for(const at::Tensor& tensor);
  void recompute();
  void fill_place(Run& run, const at::Tensor& tensor);
  Tensors run_once(const libtorch::SavedTensorScope* around, const Part& section,
                   const Tensors& inputs);
  Tensors skip(Run& run, const Tensors& inputs);

  static thread_local Run* running_;

  // Parts of the graph on several devices need the part's tensors at the same time. Recursive: the
  // part may run backward passes of its own.
  std::recursive_mutex mutex_;
  const Part part_;
  RunState state_;
  const bool has_sections_;
  // Saved like any tensor of the graph: through the hooks around this part.
  std::vector<Saved> inputs_;
  // One per dropped tensor, in order.
  std::vector<std::weak_ptr<Place>> places_;
  std::vector<Likeness> likenesses_;
  std::vector<Section> sections_;
};

}  // namespace headroom::nn::detail
