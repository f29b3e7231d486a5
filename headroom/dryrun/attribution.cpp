#include "headroom/dryrun/attribution.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include "headroom/dryrun/module_calls.h"
#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/tensors_in.h"

namespace headroom::dryrun {
namespace {

// A copy in another type whose source is neither a parameter nor an input.
bool is_copy_of_result(const sim::OperatorCall& call) {
  return call.name == "aten::_to_copy" && !call.arguments[0].toTensor().is_leaf();
}

bool is_part(const std::string& module, const std::string& whole) {
  return whole.empty() || (module.starts_with(whole) &&
                           (module.size() == whole.size() || module[whole.size()] == '.'));
}

}  // namespace

std::string module_of(const std::string& tensor) {
  const std::size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

Attribution::Attribution(const Subject& subject, trace::Names& names) : names_(names) {
  know(subject);
}

void Attribution::know(const Subject& subject) {
  const std::lock_guard lock(mutex_);
  calls_are_told_ |= !subject.modules.empty();
  for (const std::string& module : subject.modules) modules_[module] = names_.number(module);
  for (const auto* tensors : {&subject.parameters, &subject.buffers})
    for (const auto& [name, tensor] : *tensors)
      if (tensor.defined() && tensor.has_storage()) {
        const trace::Name owner = names_.number(module_of(name));
        texts_[owner] = module_of(name);
        owners_.try_emplace(tensor.storage().unsafeGetStorageImpl(), Owners{owner, owner})
            .first->second.last = owner;
      }
  for (const auto& [name, tensor] : subject.parameters)
    if (met_.insert(tensor.unsafeGetTensorImpl()).second)
      parameters_.emplace_back(tensor.getIntrusivePtr());
}

void Attribution::begin_step() {
  const std::lock_guard lock(mutex_);
  after_backward_ = false;
  Thread& thread = this_thread();
  thread.at = {};
  thread.nodes = at::sequence_number::peek();
}

void Attribution::begin_optimizer() {
  const std::lock_guard lock(mutex_);
  after_backward_ = true;
  this_thread().at = {.module = 0, .phase = trace::Phase::optimizer};
}

void Attribution::end_optimizer() {
  const std::lock_guard lock(mutex_);
  after_backward_ = false;
  this_thread().at = {.module = 0, .phase = phase_now(false)};
}

void Attribution::look_at(const at::Tensor& argument, bool is_embedding, Arguments& found) {
  if (!argument.defined() || !argument.has_storage()) return;
  if (argument.numel() > 1) found.are_single_numbers = false;
  const std::lock_guard lock(mutex_);
  const auto owners = owners_.find(argument.storage().unsafeGetStorageImpl());
  if (owners != owners_.end()) {
    const trace::Name module = is_embedding ? owners->second.first : owners->second.last;
    if (found.module.value_or(module) != module) found.has_several_modules = true;
    found.module = module;
  }
  if (!argument.requires_grad()) return;
  found.needs_gradient = true;
  if (!argument.is_leaf()) return;
  found.has_leaf_with_gradient = true;
  if (met_.insert(argument.unsafeGetTensorImpl()).second)
    parameters_.emplace_back(argument.getIntrusivePtr());
}

// The node of a thread's first operator probably exists already.
Attribution::Thread& Attribution::this_thread() {
  const auto [found, is_new] = threads_.try_emplace(at::RecordFunction::currentThreadId());
  if (is_new) {
    const std::uint64_t nodes = at::sequence_number::peek();
    found->second.nodes = nodes > 0 ? nodes - 1 : 0;
  }
  return found->second;
}

bool Attribution::is_sum_of_losses(const Arguments& found) {
  return found.needs_gradient && found.are_single_numbers && !found.has_leaf_with_gradient;
}

Attribution::Seen Attribution::on_operator(const sim::OperatorCall& call) {
  Arguments found;
  const bool is_embedding = call.name.find("embedding") != std::string_view::npos;
  for (std::size_t i = 0; i < call.argument_count; ++i)
    libtorch::for_each_tensor(call.arguments[i], [&](const at::Tensor& argument) {
      look_at(argument, is_embedding, found);
    });
  // Neither `loss.float()` nor `total = total + loss` begins a forward pass after a backward pass.
  if (!found.module && !libtorch::in_backward_pass() &&
      (is_copy_of_result(call) || (after_backward_ && is_sum_of_losses(found))))
    return {};
  const std::lock_guard lock(mutex_);
  Thread& thread = this_thread();
  const trace::Phase phase = thread.at.phase = phase_now(found.needs_gradient);
  if (phase == trace::Phase::backward) {
    after_backward_ = true;
    const ModuleCall* const module = calls_are_told_ ? innermost_module_call() : nullptr;
    if (module != nullptr && module->in_backward)
      note_forward(thread, found, phase);
    else
      thread.at.module = module_of_backward(thread);
    return {.is_backward = true};
  }
  note_forward(thread, found, phase);
  const bool forward_again = phase == trace::Phase::forward && after_backward_.exchange(false);
  return {.after_backward = forward_again || phase == trace::Phase::optimizer};
}

trace::Phase Attribution::phase_now(bool needs_gradient) const {
  if (libtorch::in_backward_pass()) return trace::Phase::backward;
  if (!after_backward_)
    return evaluates_ && !at::GradMode::is_enabled() ? trace::Phase::evaluation
                                                     : trace::Phase::forward;
  return at::GradMode::is_enabled() && needs_gradient ? trace::Phase::forward
                                                      : trace::Phase::optimizer;
}

void Attribution::note_forward(Thread& thread, const Arguments& found, trace::Phase phase) {
  // An operator on the parameters of several modules belongs to no single module, and neither does
  // the optimizer's work on other tensors.
  if (calls_are_told_ && phase != trace::Phase::optimizer)
    note_module(thread, module_of_call(found));
  else if (found.module && !found.has_several_modules)
    note_module(thread, *found.module);
  else if (found.has_several_modules || phase == trace::Phase::optimizer)
    thread.at.module = 0;
  thread.nodes = at::sequence_number::peek();
}

trace::Name Attribution::module_of_call(const Arguments& found) const {
  const trace::Name own = found.has_several_modules ? 0 : found.module.value_or(0);
  const ModuleCall* const call = innermost_module_call();
  const auto called = call == nullptr ? modules_.end() : modules_.find(call->name);
  if (called == modules_.end()) return own;
  return own != 0 && is_part(texts_.at(own), call->name) ? own : called->second;
}

// If the running operator needs an autograd node, it exists already.
void Attribution::note_module(Thread& thread, trace::Name module) {
  thread.at.module = module;
  if (!thread.changes.empty() && thread.changes.back().second == module) return;
  thread.changes.emplace_back(std::min(thread.nodes, at::sequence_number::peek()), module);
}

trace::Name Attribution::module_of_backward(const Thread& thread) const {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return thread.at.module;  // sums of gradients, between two nodes
  const auto forward = threads_.find(node->thread_id());
  if (forward == threads_.end() || forward->second.changes.empty()) return thread.at.module;
  const auto& changes = forward->second.changes;
  const auto after = std::upper_bound(
      changes.begin(), changes.end(), node->sequence_nr(),
      [](std::uint64_t number, const auto& change) { return number < change.first; });
  return after == changes.begin() ? 0 : std::prev(after)->second;
}

Whereabouts Attribution::now() const {
  const std::lock_guard lock(mutex_);
  const auto known = threads_.find(at::RecordFunction::currentThreadId());
  const bool is_known = known != threads_.end();
  if (libtorch::in_backward_pass())
    return {is_known ? known->second.at.module : 0, trace::Phase::backward};
  if (!is_known) return {0, phase_now(false)};
  const Whereabouts& last = known->second.at;
  if (!after_backward_ || last.phase == trace::Phase::optimizer) return last;
  // An optimizer may allocate a tensor before its first operator.
  if (!at::GradMode::is_enabled()) return {0, trace::Phase::optimizer};
  return {last.module, trace::Phase::forward};
}

std::vector<at::Tensor> Attribution::parameters() const {
  const std::lock_guard lock(mutex_);
  std::vector<at::Tensor> alive;
  for (const auto& parameter : parameters_)
    if (auto strong = parameter.lock()) alive.emplace_back(std::move(strong));
  return alive;
}

}  // namespace headroom::dryrun
