#include "headroom/libtorch/follow.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include <mutex>
#include <utility>
#include <vector>

#include "headroom/libtorch/detail/carried_key.h"
#include "headroom/libtorch/set_data.h"

namespace headroom::libtorch {
namespace {

using at::IntArrayRef;
using at::Tensor;
using detail::kCarriedKey;
using Again = std::function<Tensor(const Tensor&, const Tensor&)>;
using Bias = std::optional<Tensor>;

struct Following {
  Follower follower;
  std::function<void()> otherwise;
};

// The backend metadata of a followed weight, and of weight.t().
struct Carried final : c10::BackendMeta {
  Carried(std::shared_ptr<const Following> its, bool is_transposed)
      : following(std::move(its)), transposed(is_transposed) {}
  const std::shared_ptr<const Following> following;
  const bool transposed;
};

const Carried* carried(const Tensor& tensor) {
  return dynamic_cast<const Carried*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
}

void attach(const Tensor& to, std::shared_ptr<const Following> following, bool transposed) {
  c10::TensorImpl& impl = *to.unsafeGetTensorImpl();
  impl.set_backend_meta(c10::make_intrusive<Carried>(std::move(following), transposed));
  detail::carry(impl, true);
}

// A backward pass multiplies by the weight, too, and does not count as a use.
void note_other_use(const Following& following) {
  const bool is_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (following.otherwise && !is_backward) following.otherwise();
}

// Runs LibTorch's own operator, then the follower.
template <typename Plain>
Tensor followed(Use::Kind kind, const Tensor& input, const Tensor& weight, bool transposed,
                const Plain& plain, const Again& again) {
  Tensor result = [&] {
    const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
    return plain();
  }();
  const Carried* const its = carried(weight);
  if (its == nullptr) return result;
  const std::shared_ptr<const Following> following = its->following;
  if (its->transposed == transposed)
    return following->follower({.kind = kind, .input = input, .again = again}, std::move(result));
  note_other_use(*following);
  return result;
}

Tensor plain_linear(const Tensor& x, const Tensor& weight) {
  return at::linear(x, weight);
}

// ---- Linear layers ----

Tensor linear(const Tensor& x, const Tensor& weight, const Bias& bias) {
  return followed(
      Use::Kind::linear, x, weight, false, [&] { return at::linear(x, weight, bias); },
      plain_linear);
}

Tensor matmul(const Tensor& x, const Tensor& transposed) {
  return followed(
      Use::Kind::linear, x, transposed, true, [&] { return at::matmul(x, transposed); },
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
      [&] { return at::addmm(bias, x, transposed, beta, alpha); }, scaled);
}

Tensor transposed(const Tensor& weight, const std::function<Tensor()>& plain) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  const Tensor view = plain();
  if (const Carried* const its = carried(weight)) attach(view, its->following, !its->transposed);
  return view;
}

Tensor t(const Tensor& weight) {
  return transposed(weight, [&] { return at::t(weight); });
}

Tensor transpose(const Tensor& weight, std::int64_t one, std::int64_t other) {
  const auto plain = [&] { return at::transpose(weight, one, other); };
  if (weight.dim() == 2 && (one - other) % 2 != 0) return transposed(weight, plain);
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
      Use::Kind::convolution, x, weight, false, [&] { return run(x, weight, bias); },
      [&](const Tensor& input, const Tensor& other) { return run(input, other, {}); });
}

Tensor embedding(const Tensor& weight, const Tensor& indices, std::int64_t padding,
                 bool by_frequency, bool sparse) {
  const Again look_up = [&](const Tensor& at_these, const Tensor& table) {
    return at::embedding(table, at_these, padding, by_frequency, sparse);
  };
  return followed(
      Use::Kind::embedding, indices, weight, false, [&] { return look_up(indices, weight); },
      look_up);
}

// ---- Other uses ----

// Products, convolutions and lookups beside those above.
constexpr const char* kOthers[] = {"mm",           "bmm",           "mv",
                                   "addmv",        "addbmm",        "baddbmm",
                                   "inner",        "tensordot",     "einsum",
                                   "bilinear",     "conv3d",        "conv_transpose1d",
                                   "index_select", "embedding_bag", "conv_transpose2d.input",
                                   "index.Tensor", "gather",        "embedding_bag.padding_idx"};

void used_otherwise(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  std::vector<std::shared_ptr<const Following>> met;
  const auto meet = [&](const Tensor& tensor) {
    const Carried* const its = tensor.defined() ? carried(tensor) : nullptr;
    if (its != nullptr) met.push_back(its->following);
  };
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size()))
    if (value.isTensor())
      meet(value.toTensor());
    else if (value.isTensorList())
      for (const Tensor& one : value.toTensorVector()) meet(one);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kCarriedKey),
                     stack);
  for (const auto& following : met) note_other_use(*following);
}

// All other operators ignore the key.
void register_kernels() {
  static std::once_flag flag;
  std::call_once(flag, [] {
    static torch::Library& all =
        *new torch::Library(torch::Library::IMPL, "_", kCarriedKey, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFallthrough());
    static torch::Library& aten =
        *new torch::Library(torch::Library::IMPL, "aten", kCarriedKey, __FILE__, __LINE__);
    aten.impl("linear", linear);
    aten.impl("matmul", matmul);
    aten.impl("addmm", addmm);
    aten.impl("t", t);
    aten.impl("transpose.int", transpose);
    aten.impl("conv1d", &convolution<IntArrayRef, at::conv1d>);
    aten.impl("conv1d.padding", &convolution<std::string_view, at::conv1d>);
    aten.impl("conv2d", &convolution<IntArrayRef, at::conv2d>);
    aten.impl("conv2d.padding", &convolution<std::string_view, at::conv2d>);
    aten.impl("embedding", embedding);
    for (const char* const other : kOthers)
      aten.impl(other, torch::CppFunction::makeFromBoxedFunction<&used_otherwise>());
  });
}

struct Keys final : c10::TensorImpl {
  static c10::DispatchKeySet& of(c10::TensorImpl& tensor) { return tensor.*(&Keys::key_set_); }
};

}  // namespace

void detail::carry(c10::TensorImpl& tensor, bool wanted) {
  c10::DispatchKeySet& keys = Keys::of(tensor);
  keys = wanted ? keys.add(kCarriedKey) : keys.remove(kCarriedKey);
}

detail::WithoutKeyScope::WithoutKeyScope(c10::TensorImpl& tensor)
    : tensor_(tensor),
      had_(tensor.key_set().has(kCarriedKey)),
      meta_(tensor.get_backend_meta_intrusive_ptr()) {
  if (had_) carry(tensor_, false);
}

detail::WithoutKeyScope::~WithoutKeyScope() {
  if (!had_) return;
  carry(tensor_, true);
  tensor_.set_backend_meta(std::move(meta_));
}

void follow(const Tensor& weight, Follower follower, std::function<void()> otherwise) {
  if (!follower) {
    detail::carry(*weight.unsafeGetTensorImpl(), false);
    weight.unsafeGetTensorImpl()->set_backend_meta(nullptr);
    return;
  }
  register_kernels();
  install_set_data();
  attach(weight,
         std::make_shared<const Following>(Following{std::move(follower), std::move(otherwise)}),
         false);
}

bool is_followed(const Tensor& weight) {
  return carried(weight) != nullptr;
}

}  // namespace headroom::libtorch
