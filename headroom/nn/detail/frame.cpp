#include "headroom/nn/detail/frame.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/versions.h"

namespace headroom::nn::detail {
namespace {

using at::Tensor;

// Thrown to stop recomputation, once all places are filled.
struct Complete {};

[[noreturn]] void refuse(const char* received) {
  throw UsageError(expectation("checkpointed",
                               "a part that saves the same tensors each time it runs", received,
                               "a part whose course does not depend on outside state"));
}

// A kept result stands for that of the section: what follows saves tensors if it requires a
// gradient. It is not a leaf, which could not be changed in place.
Tensor as_result(const Tensor& kept, bool requires_grad) {
  if (!kept.defined()) return kept;
  Tensor result = kept.detach();
  if (requires_grad)
    torch::autograd::create_gradient_edge(
        result, libtorch::make_node<torch::autograd::Error>("a section that is computed once"));
  return result;
}

}  // namespace

thread_local Frame::Run* Frame::running_ = nullptr;

class Frame::Running {
 public:
  explicit Running(Run* run) : before_(std::exchange(running_, run)) {}
  ~Running() { running_ = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Run* const before_;
};

Frame::Likeness::Likeness(const Tensor& of)
    : sizes(of.is_nested() ? std::vector<std::int64_t>() : of.sizes().vec()),
      type(of.scalar_type()),
      device(of.device()) {}

Frame::Frame(Part part, const Tensors& inputs, bool has_sections)
    : part_(std::move(part)), state_(inputs), has_sections_(has_sections) {
  for (const Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
}

// ---- The first run ----

Tensors Frame::run(const Tensors& inputs) {
  Run run{.frame = *this, .again = false, .around = libtorch::SavedTensorScope::innermost()};
  const Running running(has_sections_ ? &run : nullptr);
  const libtorch::SavedTensorScope scope(
      [frame = shared_from_this()](const Tensor& tensor) { return frame->place_for(tensor); });
  Tensors outputs = part_(inputs);
  state_.ran();
  return outputs;
}

libtorch::Unpack Frame::place_for(const Tensor& tensor) {
  auto place = std::make_shared<Place>();
  places_.push_back(place);
  likenesses_.emplace_back(tensor);
  return [frame = shared_from_this(), place] {
    const std::lock_guard lock(frame->mutex_);
    if (!place->tensor) frame->recompute();
    if (!place->tensor) refuse("one with fewer");
    return *std::exchange(place->tensor, std::nullopt);
  };
}

// ---- The second run ----

void Frame::recompute() {
  Tensors inputs;
  for (const Saved& input : inputs_) inputs.push_back(input.unpack());
  Run run{.frame = *this, .again = true, .around = nullptr};
  const auto keep = [this, &run](const Tensor& tensor) -> libtorch::Unpack {
    fill_place(run, tensor);
    return [tensor] { return tensor; };
  };
  const RunState::Replay replay(state_);
  const Running running(has_sections_ ? &run : nullptr);
  try {
    const libtorch::SavedTensorScope scope(keep);
    (void)part_(inputs);
  } catch (const Complete&) {
  }
}

void Frame::fill_place(Run& run, const Tensor& tensor) {
  if (run.next_place == places_.size()) throw Complete();  // the part has caught the first one
  const bool misses_section = run.next_section < sections_.size() &&
                              sections_[run.next_section].first_place <= run.next_place;
  if (misses_section) refuse("one with fewer sections");
  if (Likeness(tensor) != likenesses_[run.next_place])
    refuse("one of another shape, type or device");
  if (const std::shared_ptr<Place> place = places_[run.next_place].lock()) place->tensor = tensor;
  if (++run.next_place == places_.size()) throw Complete();
}

// ---- Sections ----

Tensors Frame::run_section(const Part& section, const Tensors& inputs) {
  if (running_ == nullptr || !at::GradMode::is_enabled()) return section(inputs);
  Run& run = *running_;
  const Running none(nullptr);  // a section inside is a part of this one
  return run.again ? run.frame.skip(run, inputs) : run.frame.run_once(run.around, section, inputs);
}

Tensors Frame::run_once(const libtorch::SavedTensorScope* around, const Part& section,
                        const Tensors& inputs) {
  std::vector<View> dropped;
  const std::size_t first_place = places_.size();
  const auto drop = [&](const Tensor& tensor) {
    if (!tensor.has_storage()) return false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = inputs[i];
      if (!input.defined() || !input.is_alias_of(tensor) || input.dtype() != tensor.dtype())
        continue;
      dropped.push_back({i, tensor.sizes().vec(), tensor.strides().vec(),
                         tensor.storage_offset() - input.storage_offset()});
      return true;
    }
    return false;
  };
  const auto pack = [&](const Tensor& tensor) -> libtorch::Unpack {
    if (drop(tensor)) return place_for(tensor);
    const libtorch::OuterScope outside(around);
    const auto kept = std::make_shared<Saved>(tensor, /*is_output=*/false);
    return [kept] { return kept->unpack(); };
  };
  libtorch::RandomState random(libtorch::devices_in_use());
  Tensors results;
  {
    const libtorch::SavedTensorScope scope(pack);
    results = section(inputs);
  }
  random.keep_used();
  const libtorch::OuterScope outside(around);
  Section kept{first_place, std::move(dropped), {}, random.now()};
  for (const Tensor& result : results)
    kept.results.push_back({Saved(result.defined() ? result.detach() : result, false),
                            result.defined() && result.requires_grad()});
  sections_.push_back(std::move(kept));
  return results;
}

Tensors Frame::skip(Run& run, const Tensors& inputs) {
  if (run.next_section == sections_.size()) refuse("one with more sections");
  const Section& kept = sections_[run.next_section++];
  if (run.next_place != kept.first_place) refuse("one with another order of sections");
  for (const View& view : kept.dropped) {
    const Tensor input = inputs.at(view.input).detach();
    fill_place(run,
               input.as_strided(view.sizes, view.strides, input.storage_offset() + view.offset));
  }
  kept.after.restore();
  Tensors results;
  for (const auto& [tensor, requires_grad] : kept.results)
    results.push_back(as_result(tensor.unpack(), requires_grad));
  return results;
}

}  // namespace headroom::nn::detail
