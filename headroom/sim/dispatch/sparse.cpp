#include "headroom/sim/dispatch/registration.h"

#include <ATen/ATen.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <torch/library.h>

#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/known.h"
#include "headroom/sim/device/reads.h"
#include "headroom/sim/device/running_operator.h"

namespace headroom::sim::detail {
namespace {

using at::Scalar;
using at::Tensor;

bool computes(const Tensor& tensor) {
  return mode_now(card_at(tensor.device().index())) == Mode::compute;
}

bool knows(const Tensor& tensor) {
  return is_knowable(tensor) && is_known(tensor);
}

Tensor assembled(const Tensor& indices, const Tensor& values, at::IntArrayRef sizes) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes,
                                       values.options().layout(at::kSparse));
}

Tensor sparse_on_host(Aliases& aliases, const Tensor& sparse) {
  return assembled(aliases.of(sparse._indices()), aliases.of(sparse._values()), sparse.sizes());
}

// CUDA adds row by row, without further memory, for the one sparse dimension of an embedding.
// Source: aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu, add_out_dense_sparse_cuda.
Tensor& add_to_dense(Tensor& dense, const Tensor& sparse, const Scalar& alpha) {
  TORCH_CHECK(dense.sizes() == sparse.sizes(),
              "add: expected 'self' and 'other' to have same size, "
              "but got ",
              dense.sizes(), " and ", sparse.sizes());
  if (computes(dense) || (knows(dense) && knows(sparse._indices()) && knows(sparse._values()))) {
    Aliases aliases(c10::DeviceType::CPU);
    aliases.of(dense).add_(sparse_on_host(aliases, sparse), alpha);
  } else {
    forget(dense);
  }
  return dense;
}

// Concatenates two sparse tensors without coalescing.
Tensor joined(const Tensor& one, const Tensor& other, const Scalar& alpha) {
  const Tensor scaled = alpha.toDouble() == 1.0 ? other._values() : other._values().mul(alpha);
  return assembled(at::cat({one._indices(), other._indices()}, 1),
                   at::cat({one._values(), scaled}, 0), one.sizes());
}

Tensor& add_in_place(Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (!self.is_sparse()) return add_to_dense(self, other, alpha);
  TORCH_CHECK(other.is_sparse(), "add_(sparse, dense) is not supported. Use add(dense, sparse).");
  const Tensor sum = joined(self, other, alpha);
  auto* const impl = static_cast<at::SparseTensorImpl*>(self.unsafeGetTensorImpl());
  impl->set_indices_and_values_unsafe(sum._indices(), sum._values());
  impl->set_coalesced(false);
  return self;
}

Tensor added(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (self.is_sparse() && other.is_sparse()) return joined(self, other, alpha);
  if (self.is_sparse()) return added(other, self, alpha);
  Tensor sum = self.clone();
  return add_to_dense(sum, other, alpha);
}

Tensor to_dense(const Tensor& self, std::optional<at::ScalarType> type, std::optional<bool>) {
  Tensor dense = at::zeros(self.sizes(), self._values().options());
  add_to_dense(dense, self, 1);
  return type ? dense.to(*type) : dense;
}

// The rows that coincide depend on the indices alone.
Tensor coalesced_places(const Tensor& self) {
  Aliases aliases(c10::DeviceType::CPU);
  const Tensor indices = aliases.of(self._indices());
  const Tensor counted =
      assembled(indices, at::ones(indices.size(1), at::kByte),
                self.sizes().slice(0, static_cast<std::size_t>(indices.size(0))));
  return counted.coalesce().indices();
}

Tensor coalesce(const Tensor& self) {
  if (!computes(self) && knows(self._indices()) && !knows(self._values())) {
    const Tensor indices = coalesced_places(self).to(self.device());
    std::vector<std::int64_t> sizes = self._values().sizes().vec();
    sizes[0] = indices.size(1);
    return assembled(indices, at::empty(sizes, self._values().options()), self.sizes())
        ._coalesced_(true);
  }
  if (!computes(self) && !knows(self._indices()))
    throw libtorch::NotSimulatedError(
        "coalesce on a shape-only simulated card: how many different indices there are depends on "
        "values that a shape-only tensor does not have. Run this part in compute mode, "
        "or use an optimizer that takes sparse gradients as they are, such as SGD.");
  Aliases aliases(c10::DeviceType::CPU);
  const Tensor host = sparse_on_host(aliases, self).coalesce();
  const Tensor indices = host.indices().to(self.device());
  const Tensor values = host.values().to(self.device());
  return assembled(indices, values, self.sizes())._coalesced_(true);
}

// The rows of a dense tensor where the mask has some: SparseAdam reads its state by it.
Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  if (self.is_sparse())
    throw libtorch::NotSimulatedError(
        "sparse_mask of a sparse tensor on a simulated card: only that of a dense one is "
        "simulated. Use to_dense() before it.");
  c10::List<std::optional<Tensor>> places;
  for (const Tensor& place : mask._indices().unbind(0)) places.push_back(place);
  return assembled(mask._indices(), self.index(places), mask.sizes())
      ._coalesced_(mask.is_coalesced());
}

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  throw libtorch::NotSimulatedError(
      c10::toString(op.operator_name()) +
      " of a sparse tensor on a simulated card: only the operators that gradients of "
      "embeddings need are simulated. Use to_dense() before it, or an embedding without sparse "
      "gradients.");
}

void refuse_nested(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  throw libtorch::NotSimulatedError(
      c10::toString(op.operator_name()) +
      " of a nested tensor on a simulated card: only those of layout=torch.jagged are simulated. "
      "Use one of these, or a padded tensor with a mask.");
}

}  // namespace

void register_sparse() {
  library(c10::DispatchKey::NestedTensorPrivateUse1, "_")
      .fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
  library(c10::DispatchKey::SparsePrivateUse1, "_")
      .fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
  torch::Library& m = library(c10::DispatchKey::SparsePrivateUse1);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("add.Tensor", &added);
  m.impl("add_.Tensor", &add_in_place);
  m.impl("_to_dense", [](const Tensor& self, std::optional<at::ScalarType> type,
                         std::optional<bool> masked) { return to_dense(self, type, masked); });
  m.impl("_coalesce", &coalesce);
  m.impl("sparse_mask", &sparse_mask);
}

}  // namespace headroom::sim::detail
