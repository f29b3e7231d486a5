#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/detail/carried_operators.h"

namespace headroom::libtorch::detail {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Again = std::function<Tensor(const Tensor&, const Tensor&)>;
using Bias = std::optional<Tensor>;

// Runs the layer's own operator, then the follower.
template <typename Plain>
Tensor followed(Use::Kind kind, const Tensor& input, const Tensor& weight, bool transposed,
                const Plain& plain, const Again& again, bool is_scaled = false) {
  Tensor result = [&] {
    const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
    return plain();
  }();
  const Carried* const its = carried(weight);
  if (its == nullptr || !its->following) return result;
  const std::shared_ptr<const Following> following = its->following;
  if (its->transposed == transposed)
    return following->follower(
        {.kind = kind, .input = input, .again = again, .is_scaled = is_scaled}, std::move(result));
  note_other_use(*following);
  return result;
}

Tensor plain_linear(const Tensor& x, const Tensor& weight) {
  return at::linear(x, weight);
}

// ---- Products with stored weights ----

Tensor as_autocast(const Tensor& x) {
  if (!x.defined()) return x;
  const c10::DeviceType device = x.device().type();
  if (!autocasts(device)) return x;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
}

Tensor product(const Tensor& x, const Tensor& weight, bool transposed, const Tensor& bias) {
  return stored(weight)->product(as_autocast(x), transposed, as_autocast(bias));
}

bool is_transposed(const Tensor& weight) {
  const Carried* const its = carried(weight);
  return its != nullptr && its->transposed;
}

// x times the tensor, which is a stored weight or its transpose.
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  return product(x, weight, is_transposed(weight), bias);
}

bool is_matrix_of(const Tensor& x, const Tensor& weight) {
  return stored(weight) != nullptr && weight.dim() == 2 && stored(x) == nullptr && x.dim() > 0;
}

// The whole weight if there is a store; the tensor itself if not.
Tensor values(const Tensor& tensor, const char* op) {
  return stored(tensor) == nullptr ? tensor : whole(tensor, op);
}

// ---- Linear layers ----

Tensor linear(const Tensor& x, const Tensor& weight, const Bias& bias) {
  return followed(
      Use::Kind::linear, x, weight, false,
      [&] {
        if (!is_matrix_of(x, weight))
          return at::linear(values(x, "aten::linear"), values(weight, "aten::linear"), bias);
        return product(x, weight, !is_transposed(weight), bias.value_or(Tensor()));
      },
      plain_linear);
}

Tensor matmul(const Tensor& x, const Tensor& transposed) {
  return followed(
      Use::Kind::linear, x, transposed, true,
      [&] {
        if (is_matrix_of(x, transposed)) return product(x, transposed);
        return at::matmul(values(x, "aten::matmul"), values(transposed, "aten::matmul"));
      },
      plain_linear);
}

Tensor addmm(const Tensor& bias, const Tensor& x, const Tensor& transposed, const at::Scalar& beta,
             const at::Scalar& alpha) {
  const Again scaled = [&](const Tensor& input, const Tensor& weight) {
    const Tensor product = at::linear(input, weight);
    return alpha.equal(1) ? product : product * alpha;
  };
  return followed(
      Use::Kind::linear, x, transposed, true,
      [&] {
        const bool simple = beta.equal(1) && alpha.equal(1) && bias.dim() == 1;
        if (simple && is_matrix_of(x, transposed)) return product(x, transposed, bias);
        return at::addmm(values(bias, "aten::addmm"), values(x, "aten::addmm"),
                         values(transposed, "aten::addmm"), beta, alpha);
      },
      scaled, !alpha.equal(1));
}

Tensor mm(const Tensor& x, const Tensor& weight) {
  const Carried* const its = carried(weight);
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  Tensor result = is_matrix_of(x, weight)
                      ? product(x, weight)
                      : at::mm(values(x, "aten::mm"), values(weight, "aten::mm"));
  for (const Carried* const met : {its, carried(x)})
    if (met != nullptr && met->following) note_other_use(*met->following);
  return result;
}

// Autocast leaves it alone.
Tensor grouped_mm(const Tensor& x, const Tensor& weights, const Bias& ends, const Bias& bias,
                  std::optional<at::ScalarType> type) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  if (stored(weights) != nullptr && ends && !bias && !type)
    return stored(weights)->grouped_product(x, is_transposed(weights), *ends);
  return at::_grouped_mm(values(x, "aten::_grouped_mm"), values(weights, "aten::_grouped_mm"), ends,
                         bias, type);
}

// ---- Transposes ----

// Not by as_strided for a stored weight: it compares sizes with those of the memory.
Tensor transposed(const Tensor& weight, const std::function<Tensor()>& plain) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  const Carried* const its = carried(weight);
  if (its == nullptr) return plain();
  Tensor view;
  if (its->store) {
    view = hollow(weight, its->store, weight.device(), weight.scalar_type());
    std::vector<std::int64_t> sizes = weight.sizes().vec(), strides = weight.strides().vec();
    std::swap(sizes.end()[-1], sizes.end()[-2]);
    std::swap(strides.end()[-1], strides.end()[-2]);
    view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else {
    view = plain();
  }
  attach(view, its->following, its->store, !its->transposed);
  return view;
}

Tensor t(const Tensor& weight) {
  if (weight.dim() == 2) return transposed(weight, [&] { return at::t(weight); });
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  return at::t(values(weight, "aten::t"));
}

// The last two dimensions, in either order.
bool swaps_last_two(const Tensor& weight, std::int64_t one, std::int64_t other) {
  const std::int64_t all = weight.dim();
  const auto from_end = [&](std::int64_t at) { return at < 0 ? -at : all - at; };
  return from_end(one) + from_end(other) == 3 && from_end(one) * from_end(other) == 2;
}

Tensor transpose(const Tensor& weight, std::int64_t one, std::int64_t other) {
  const auto plain = [&] { return at::transpose(values(weight, "aten::transpose"), one, other); };
  const bool is_stored = stored(weight) != nullptr;
  if (swaps_last_two(weight, one, other) && (weight.dim() == 2 || is_stored))
    return transposed(weight, plain);
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  return plain();
}

// ---- Convolutions and embeddings ----

template <typename Padding>
using PlainConvolution = Tensor(const Tensor&, const Tensor&, const Bias&, IntArrayRef, Padding,
                                IntArrayRef, std::int64_t);

// `Padding`: in numbers, or by a word.
template <typename Padding, PlainConvolution<Padding>* plain>
Tensor convolution(const Tensor& x, const Tensor& weight, const Bias& bias, IntArrayRef stride,
                   Padding padding, IntArrayRef dilation, std::int64_t groups) {
  const auto run = [&](const Tensor& in, const Tensor& w, const Bias& b) {
    return plain(in, w, b, stride, padding, dilation, groups);
  };
  return followed(
      Use::Kind::convolution, x, weight, false,
      [&] { return run(x, values(weight, "aten::convolution"), bias); },
      [&](const Tensor& input, const Tensor& other) { return run(input, other, {}); });
}

Tensor embedding(const Tensor& weight, const Tensor& indices, std::int64_t padding,
                 bool by_frequency, bool sparse) {
  const Again look_up = [&](const Tensor& at_these, const Tensor& table) {
    return at::embedding(table, at_these, padding, by_frequency, sparse);
  };
  return followed(
      Use::Kind::embedding, indices, weight, false,
      [&] { return look_up(indices, values(weight, "aten::embedding")); }, look_up);
}

// ---- Other uses ----

// Products, convolutions and lookups beside those above.
constexpr const char* kOthers[] = {"bmm",
                                   "mv",
                                   "addmv",
                                   "addbmm",
                                   "baddbmm",
                                   "inner",
                                   "tensordot",
                                   "einsum",
                                   "bilinear",
                                   "conv3d",
                                   "conv_transpose1d",
                                   "index_select",
                                   "embedding_bag",
                                   "conv_transpose2d.input",
                                   "index.Tensor",
                                   "gather",
                                   "embedding_bag.padding_idx"};

void used_otherwise(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  std::vector<std::shared_ptr<const Following>> met;
  const auto meet = [&](const Tensor& tensor) {
    const Carried* const its = carried(tensor);
    if (its != nullptr && its->following) met.push_back(its->following);
  };
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size()))
    if (value.isTensor())
      meet(value.toTensor());
    else if (value.isTensorList())
      for (const Tensor& one : value.toTensorVector()) meet(one);
  with_whole_weights(op, keys, stack);
  for (const auto& following : met) note_other_use(*following);
}

}  // namespace

// A backward pass multiplies by the weight, too, and does not count as a use.
void note_other_use(const Following& following) {
  const bool is_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (following.otherwise && !is_backward) following.otherwise();
}

void add_products(torch::Library& aten) {
  aten.impl("linear", linear);
  aten.impl("matmul", matmul);
  aten.impl("addmm", addmm);
  aten.impl("mm", mm);
  aten.impl("_grouped_mm", grouped_mm);
  aten.impl("t", t);
  aten.impl("transpose.int", transpose);
  aten.impl("conv1d", &convolution<IntArrayRef, at::conv1d>);
  aten.impl("conv1d.padding", &convolution<std::string_view, at::conv1d>);
  aten.impl("conv2d", &convolution<IntArrayRef, at::conv2d>);
  aten.impl("conv2d.padding", &convolution<std::string_view, at::conv2d>);
  aten.impl("embedding", embedding);
  for (const char* const other : kOthers)
    aten.impl(other, torch::CppFunction::makeFromBoxedFunction<&used_otherwise>());
}

}  // namespace headroom::libtorch::detail
