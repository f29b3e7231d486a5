#include "headroom/libtorch/modules.h"

#include <torch/nn/module.h>
#include <torch/optim.h>

#include <typeinfo>

#include "headroom/base/error.h"
#include "headroom/libtorch/detail/relocation.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::libtorch {
namespace {

using detail::Relocation;
using torch::nn::Module;
using torch::optim::Optimizer;
using Entries = std::vector<std::pair<std::string, at::Tensor>>;

Entries entries_of(const Module& module) {
  Entries entries;
  for (const auto& item : module.named_parameters()) entries.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) entries.emplace_back(item.key(), item.value());
  return entries;
}

void add(Relocation& relocation, const Module& module) {
  for (const auto& [name, tensor] : entries_of(module)) relocation.add(name, tensor);
  for (const auto& [name, tensor] : tensors_of(module)) relocation.add(name, tensor);
}

// ---- The state of torch::optim's optimizers ----

template <typename State>
Entries of_adam(const State& state) {
  return {{"exp_avg", state.exp_avg()},
          {"exp_avg_sq", state.exp_avg_sq()},
          {"max_exp_avg_sq", state.max_exp_avg_sq()}};
}

Entries of_lbfgs(const torch::optim::LBFGSParamState& state) {
  Entries all = {
      {"d", state.d()}, {"prev_flat_grad", state.prev_flat_grad()}, {"H_diag", state.H_diag()}};
  for (const at::Tensor& tensor : state.old_dirs()) all.emplace_back("old_dirs", tensor);
  for (const at::Tensor& tensor : state.old_stps()) all.emplace_back("old_stps", tensor);
  for (const at::Tensor& tensor : state.ro()) all.emplace_back("ro", tensor);
  if (state.al())
    for (const at::Tensor& tensor : *state.al()) all.emplace_back("al", tensor);
  return all;
}

// Nothing for a state of another class.
std::optional<Entries> entries_of(const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (const auto* adamw = dynamic_cast<const AdamWParamState*>(&state)) return of_adam(*adamw);
  if (const auto* adam = dynamic_cast<const AdamParamState*>(&state)) return of_adam(*adam);
  if (const auto* lbfgs = dynamic_cast<const LBFGSParamState*>(&state)) return of_lbfgs(*lbfgs);
  if (const auto* sgd = dynamic_cast<const SGDParamState*>(&state))
    return Entries{{"momentum_buffer", sgd->momentum_buffer()}};
  if (const auto* adagrad = dynamic_cast<const AdagradParamState*>(&state))
    return Entries{{"sum", adagrad->sum()}};
  if (const auto* rmsprop = dynamic_cast<const RMSpropParamState*>(&state))
    return Entries{{"square_avg", rmsprop->square_avg()},
                   {"momentum_buffer", rmsprop->momentum_buffer()},
                   {"grad_avg", rmsprop->grad_avg()}};
  return {};
}

void add(Relocation& relocation, Optimizer& optimizer) {
  for (const auto& [key, owned] : optimizer.state()) {
    const torch::optim::OptimizerParamState& state = *owned;
    const std::optional<Entries> entries = entries_of(state);
    if (!entries)
      throw UsageError(
          expectation("move", "an optimizer of torch::optim",
                      std::string("one with a state of class ") + typeid(state).name(),
                      "moving its tensors yourself, or making it again after the move"));
    for (const auto& [name, tensor] : *entries) relocation.add(name, tensor);
  }
}

template <typename... Owner>
void move_all(c10::Device device, Owner&... owner) {
  Relocation relocation(device);
  (add(relocation, owner), ...);
  relocation.copy();
  relocation.commit();
}

// ---- Clones ----

std::size_t first_use(const Entries& entries, std::size_t of) {
  std::size_t first = 0;
  while (!entries[first].second.is_same(entries[of].second)) ++first;
  return first;
}

void check_ties(const Entries& from, const Entries& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t tied = first_use(from, i);
    if (first_use(to, i) == tied) continue;
    throw UsageError(expectation("clone", "a copy that shares the same tensors",
                                 from[i].first + ", which shares its storage with " +
                                     from[tied].first + " in the original but not in the copy",
                                 "a function tie_weights() in the module's class"));
  }
}

// clone() gives each tensor its own storage; tensors that share one in the original must share one
// in the copy.
void share_storages(const Entries& from, const Entries& to, c10::Device device) {
  std::unordered_map<const c10::StorageImpl*, std::vector<std::size_t>> sharing;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i].second.has_storage() && first_use(from, i) == i)
      sharing[from[i].second.storage().unsafeGetStorageImpl()].push_back(i);
  for (const auto& [storage, members] : sharing) {
    if (members.size() < 2) continue;
    const c10::Storage shared = detail::copied(from[members[0]].second.storage(), device);
    for (const std::size_t i : members) {
      const at::Tensor& original = from[i].second;
      c10::TensorImpl* const impl = to[i].second.unsafeGetTensorImpl();
      impl->set_allow_tensor_metadata_change(true);
      impl->set_storage_keep_dtype(shared);
      impl->set_sizes_and_strides(original.sizes(), original.strides(), original.storage_offset());
    }
  }
}

}  // namespace

void move(Module& module, c10::Device device) {
  move_all(device, module);
}
void move(const std::vector<Module*>& modules, c10::Device device) {
  Relocation relocation(device);
  for (const Module* module : modules) add(relocation, *module);
  relocation.copy();
  relocation.commit();
}
void move(Optimizer& optimizer, c10::Device device) {
  move_all(device, optimizer);
}
void move(Module& module, Optimizer& optimizer, c10::Device device) {
  move_all(device, module, optimizer);
}

void move_shapes(Module& module, c10::Device device) {
  move_shapes(std::vector<Module*>{&module}, device);
}
void move_shapes(const std::vector<Module*>& modules, c10::Device device) {
  Relocation relocation(device, detail::Values::dropped);
  for (const Module* module : modules) {
    for (const at::Tensor& parameter : module->parameters()) parameter.mutable_grad().reset();
    add(relocation, *module);
  }
  relocation.copy();
  relocation.commit();
}

std::vector<at::Tensor> states_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& [key, state] : optimizer.state())
    for (const auto& [name, tensor] : entries_of(*state).value_or(Entries()))
      if (tensor.defined()) all.push_back(tensor);
  return all;
}

std::shared_ptr<Module> detail::clone_module(const Module& module, c10::Device device,
                                             const Tie& tie) {
  const torch::NoGradGuard no_grad;
  const c10::Device there = concrete(device);
  auto copy = on(there, [&] { return module.clone(there); });
  if (tie) tie(*copy);
  const Entries from = entries_of(module);
  const Entries to = entries_of(*copy);
  if (from.size() != to.size())
    throw UsageError(expectation(
        "clone", "a reset() that registers what the module has",
        std::to_string(to.size()) + " parameters and buffers of " + std::to_string(from.size()),
        "registering all of them in reset()"));
  check_ties(from, to);
  share_storages(from, to, there);
  for (std::size_t i = 0; i < from.size(); ++i)
    to[i].second.set_requires_grad(from[i].second.requires_grad());
  return copy;
}

}  // namespace headroom::libtorch
