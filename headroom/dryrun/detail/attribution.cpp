#include "headroom/dryrun/detail/attribution.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "headroom/libtorch/tensors_in.h"

namespace headroom::dryrun::detail {
namespace {

constexpr int kNoTask = -1;

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != kNoTask;
}

// A thread's state between two operators.
struct OfThread {
  std::uint64_t owner = 0;  // Attribution::id_
  Whereabouts at;
  std::uint64_t nodes = 0;  // autograd nodes made on this thread so far
};
thread_local OfThread of_thread;

// A copy in another type whose source is neither a parameter nor an input.
bool is_copy_of_result(const sim::OperatorCall& call) {
  return call.name == "aten::_to_copy" && !call.arguments[0].toTensor().is_leaf();
}

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> ids{0};
  return ++ids;
}

}  // namespace

std::string module_of(const std::string& tensor) {
  const std::size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

Attribution::Attribution(const Subject& subject, trace::Names& names) : id_(next_id()) {
  for (const auto* tensors : {&subject.parameters, &subject.buffers})
    for (const auto& [name, tensor] : *tensors)
      if (tensor.defined() && tensor.has_storage()) {
        const trace::Name owner = names.number(module_of(name));
        owners_.try_emplace(tensor.storage().unsafeGetStorageImpl(), Owners{owner, owner})
            .first->second.last = owner;
      }
  for (const auto& [name, tensor] : subject.parameters) {
    parameters_.emplace_back(tensor.getIntrusivePtr());
    met_.insert(tensor.unsafeGetTensorImpl());
  }
}

void Attribution::begin_step() {
  after_backward_ = false;
  of_thread = {id_, {}, at::sequence_number::peek()};
}

void Attribution::look_at(const at::Tensor& argument, bool is_embedding,
                          std::unordered_set<trace::Name>& modules, bool& needs_gradient) {
  if (!argument.defined() || !argument.has_storage()) return;
  const auto found = owners_.find(argument.storage().unsafeGetStorageImpl());
  if (found != owners_.end())
    modules.insert(is_embedding ? found->second.first : found->second.last);
  if (!argument.requires_grad()) return;
  needs_gradient = true;
  if (!argument.is_leaf()) return;
  const std::lock_guard lock(mutex_);
  if (met_.insert(argument.unsafeGetTensorImpl()).second)
    parameters_.emplace_back(argument.getIntrusivePtr());
}

bool Attribution::on_operator(const sim::OperatorCall& call) {
  std::unordered_set<trace::Name> modules;
  bool needs_gradient = false;
  const bool is_embedding = call.name.find("embedding") != std::string_view::npos;
  for (std::size_t i = 0; i < call.argument_count; ++i)
    libtorch::for_each_tensor(call.arguments[i], [&](const at::Tensor& argument) {
      look_at(argument, is_embedding, modules, needs_gradient);
    });
  // `loss.float()` after a backward pass does not begin a forward pass.
  if (modules.empty() && !in_backward() && is_copy_of_result(call)) return false;
  if (of_thread.owner != id_) {  // the node of this operator probably exists already
    const std::uint64_t nodes = at::sequence_number::peek();
    of_thread = {id_, {}, nodes > 0 ? nodes - 1 : 0};
  }

  const trace::Phase phase = phase_now(needs_gradient);
  of_thread.at.phase = phase;
  if (phase == trace::Phase::backward) {
    after_backward_ = true;
    of_thread.at.module = module_of_backward();
    return false;
  }
  // An operator on the parameters of several modules belongs to no single module, and neither does
  // the optimizer's work on other tensors.
  if (modules.size() == 1) note_module(*modules.begin());
  if (modules.size() > 1 || (modules.empty() && phase == trace::Phase::optimizer))
    of_thread.at.module = 0;
  of_thread.nodes = at::sequence_number::peek();
  const bool forward_again = phase == trace::Phase::forward && after_backward_.exchange(false);
  return forward_again || phase == trace::Phase::optimizer;
}

trace::Phase Attribution::phase_now(bool needs_gradient) const {
  if (in_backward()) return trace::Phase::backward;
  if (!after_backward_) return trace::Phase::forward;
  return at::GradMode::is_enabled() && needs_gradient ? trace::Phase::forward
                                                      : trace::Phase::optimizer;
}

// If the running operator needs an autograd node, it exists already.
void Attribution::note_module(trace::Name module) {
  if (of_thread.at.module == module) return;
  of_thread.at.module = module;
  const std::uint64_t nodes = at::sequence_number::peek();
  const std::uint64_t first = nodes > of_thread.nodes ? of_thread.nodes : nodes;
  const std::lock_guard lock(mutex_);
  changes_[at::RecordFunction::currentThreadId()].emplace_back(first, module);
}

trace::Name Attribution::module_of_backward() const {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return of_thread.at.module;  // sums of gradients, between two nodes
  const std::lock_guard lock(mutex_);
  const auto changes = changes_.find(node->thread_id());
  if (changes == changes_.end()) return of_thread.at.module;
  const auto after = std::upper_bound(
      changes->second.begin(), changes->second.end(), node->sequence_nr(),
      [](std::uint64_t number, const auto& change) { return number < change.first; });
  return after == changes->second.begin() ? 0 : std::prev(after)->second;
}

Whereabouts Attribution::now() const {
  if (in_backward())
    return {of_thread.owner == id_ ? of_thread.at.module : 0, trace::Phase::backward};
  if (of_thread.owner != id_) return {0, phase_now(false)};
  // An optimizer may allocate a tensor before its first operator.
  const bool has_left = of_thread.at.phase == trace::Phase::forward && after_backward_;
  if (has_left && !at::GradMode::is_enabled()) return {0, trace::Phase::optimizer};
  return of_thread.at;
}

std::vector<at::Tensor> Attribution::parameters() const {
  const std::lock_guard lock(mutex_);
  std::vector<at::Tensor> alive;
  for (const auto& parameter : parameters_)
    if (auto strong = parameter.lock()) alive.emplace_back(std::move(strong));
  return alive;
}

}  // namespace headroom::dryrun::detail
