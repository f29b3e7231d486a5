#include "headroom/nn/quantise.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/nn/detail/absent_weight.h"
#include "headroom/nn/detail/packed_weight.h"
#include "headroom/nn/detail/targets.h"
#include "headroom/nn/stacked_experts.h"

namespace headroom::nn {
namespace {

using torch::nn::Module;

struct Candidate {
  std::string path;  // of the layer
  Tensor weight;
  bool transposed;  // is packed so
};

bool is_linear(const Module& module) {
  return dynamic_cast<const Linear*>(&module) != nullptr ||
         dynamic_cast<const Conv1D*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::LinearImpl*>(&module) != nullptr;
}

// A layer of headroom::nn that is tied does not register the weight that it uses.
void count_users(const Module& module, std::unordered_map<const c10::TensorImpl*, int>& users) {
  for (const Tensor& own : module.parameters(false)) ++users[own.unsafeGetTensorImpl()];
  const auto* const linear = dynamic_cast<const Linear*>(&module);
  if (linear != nullptr && linear->is_tied()) ++users[linear->weight.unsafeGetTensorImpl()];
}

std::unordered_map<const c10::TensorImpl*, int> users_of_weights(const Module& module) {
  std::unordered_map<const c10::TensorImpl*, int> users;
  count_users(module, users);
  for (const auto& each : module.modules(/*include_self=*/false)) count_users(*each, users);
  return users;
}

void add_weights(const std::string& path, const Module& layer, std::vector<Candidate>& all) {
  const bool experts = dynamic_cast<const StackedExperts*>(&layer) != nullptr;
  if (!experts && !is_linear(layer)) return;
  const bool transposed = dynamic_cast<const Conv1D*>(&layer) != nullptr;
  for (const auto& parameter : layer.named_parameters(false))
    if (experts || parameter.key() == "weight")
      all.push_back({path, parameter.value(), transposed});
}

std::vector<Candidate> candidates(const Module& module) {
  const auto users = users_of_weights(module);
  std::vector<Candidate> all;
  for (const auto& item : module.named_modules("", false))
    if (!detail::in_head(item.key())) add_weights(item.key(), *item.value(), all);
  add_weights("", module, all);
  std::erase_if(all, [&](const Candidate& each) {
    return users.at(each.weight.unsafeGetTensorImpl()) > 1 || each.weight.numel() == 0;
  });
  const auto is_trained = [](const Candidate& each) { return each.weight.requires_grad(); };
  if (!std::all_of(all.begin(), all.end(), is_trained)) std::erase_if(all, is_trained);
  return all;
}

kernels::Packed memory_for(const Tensor& weight, bool transposed, const QuantiseOptions& options) {
  const std::int64_t columns = weight.size(transposed ? 0 : -1);
  return kernels::make_packed(options.format, weight.numel() / columns, columns, weight.device(),
                              options.nested);
}

// In this format, or in fewer bits.
bool is_packed_so(const Tensor& weight, const QuantiseOptions& options) {
  const kernels::Packed* const packed = packed_of(weight);
  if (packed == nullptr) return false;
  if (options.format == kernels::Format::int8) return true;
  return packed->format == kernels::Format::nf4 && packed->is_nested() >= options.nested;
}

void quantise(const Tensor& weight, bool transposed, const QuantiseOptions& options) {
  const kernels::Packed into = memory_for(weight, transposed, options);
  if (const kernels::Packed* const before = packed_of(weight); before != nullptr)
    detail::repack(*before, into);
  else if (!is_without_memory(weight))
    kernels::pack(
        transposed ? weight.detach().t() : weight.detach().reshape({into.rows, into.columns}),
        into);
  set_packed(weight, into, transposed);
}

}  // namespace

std::vector<std::string> quantised_layers(Module& module) {
  std::vector<std::string> paths;
  for (const Candidate& each : candidates(module))
    if (paths.empty() || paths.back() != each.path) paths.push_back(each.path);
  return paths;
}

std::size_t quantise(Module& module, const QuantiseOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<Candidate> all = candidates(module);
  if (all.empty())
    throw UsageError(expectation("quantise", "a module with linear layers to quantise",
                                 module.name() + ", which has none beside its heads",
                                 "another module"));
  std::erase_if(all, [&](const Candidate& each) { return is_packed_so(each.weight, options); });
  for (const Candidate& each : all) quantise(each.weight, each.transposed, options);
  return all.size();
}

const kernels::Packed* packed_of(const Tensor& weight) {
  const auto* const store =
      dynamic_cast<const detail::PackedWeight*>(libtorch::store_of(weight).get());
  return store == nullptr ? nullptr : &store->packed();
}

bool is_packed_transposed(const Tensor& weight) {
  const auto* const store =
      dynamic_cast<const detail::PackedWeight*>(libtorch::store_of(weight).get());
  return store != nullptr && store->is_transposed();
}

void set_packed(const Tensor& weight, const kernels::Packed& packed, bool transposed) {
  if (packed.rows * packed.columns != weight.numel() ||
      packed.columns != weight.size(transposed ? 0 : -1) || packed.device() != weight.device())
    throw UsageError(expectation(
        "set_packed", "a packed form of the weight's sizes and device",
        std::to_string(packed.rows) + " rows of " + std::to_string(packed.columns) + " numbers"));
  libtorch::keep_in(
      weight, std::make_shared<detail::PackedWeight>(packed, weight.sizes().vec(), transposed));
}

WithoutMemoryScope::WithoutMemoryScope() : before_(detail::build_without_memory(true)) {}
WithoutMemoryScope::~WithoutMemoryScope() {
  detail::build_without_memory(before_);
}

bool is_without_memory(const Tensor& weight) {
  return detail::is_absent(weight);
}

void give_memory(Module& module) {
  for (const Tensor& parameter : module.parameters())
    if (is_without_memory(parameter)) libtorch::keep_in(parameter, nullptr);
}

}  // namespace headroom::nn
