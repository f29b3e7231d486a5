#include "headroom/libtorch/stored_weight.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/detail/carried.h"

namespace headroom::libtorch {
namespace {

using at::Tensor;

void check(const Tensor& weight) {
  if (weight.is_leaf() && weight.has_storage() && !weight.is_sparse()) return;
  throw UsageError(expectation("keep_in", "a weight with plain memory",
                               "a sparse one or the result of a computation"));
}

// The tensor keeps its sizes and gets other memory, of no bytes for a weight with a store.
void replace_memory(const Tensor& weight, std::int64_t numbers) {
  const c10::impl::ExcludeDispatchKeyGuard plain(detail::kCarriedKey);
  c10::TensorImpl& impl = *weight.unsafeGetTensorImpl();
  const Tensor other = at::empty({numbers}, weight.options().requires_grad(false));
  const bool refuses = !impl.allow_tensor_metadata_change();
  impl.set_allow_tensor_metadata_change(true);
  impl.set_storage_keep_dtype(other.storage());
  impl.set_sizes_contiguous(weight.sizes().vec());
  impl.set_storage_offset(0);
  impl.set_allow_tensor_metadata_change(!refuses);
  impl.bump_version();
}

}  // namespace

void keep_in(const Tensor& weight, std::shared_ptr<Store> store) {
  check(weight);
  const detail::Carried* const before = detail::carried(weight);
  const auto following = before == nullptr ? nullptr : before->following;
  if (store) weight.set_requires_grad(false);
  replace_memory(weight, store ? 0 : weight.numel());
  detail::attach(weight, following, std::move(store));
}

std::shared_ptr<Store> store_of(const Tensor& weight) {
  const detail::Carried* const its = detail::carried(weight);
  return its == nullptr ? nullptr : its->store;
}

std::vector<Tensor> memory_of(const Tensor& parameter) {
  const Store* const store = detail::stored(parameter);
  return store == nullptr ? std::vector<Tensor>{parameter} : store->tensors();
}

NamedTensors parameters_of(const torch::nn::Module& module) {
  NamedTensors all;
  for (const auto& item : module.named_parameters()) {
    if (detail::stored(item.value()) == nullptr) {
      all.emplace_back(item.key(), item.value());
      continue;
    }
    std::size_t part = 0;
    for (const Tensor& tensor : memory_of(item.value()))
      all.emplace_back(item.key() + ":" + std::to_string(part++), tensor);
  }
  return all;
}

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors all = parameters_of(module);
  for (const auto& item : module.named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

}  // namespace headroom::libtorch
