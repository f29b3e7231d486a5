#include <ATen/ATen.h>

#include <mutex>

#include "headroom/libtorch/detail/carried_operators.h"

namespace headroom::libtorch {
namespace detail {
namespace {

using at::Tensor;

// ---- The whole weight ----

struct Counts {
  std::mutex mutex;
  std::map<std::string, std::int64_t> by_operator;
};

Counts& counts() {
  static Counts& all = *new Counts;
  return all;
}

void count(const std::string& op) {
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  ++all.by_operator[op];
}

// The stored weights among an operator's arguments, and the whole ones in their place.
class WholeWeights {
 public:
  WholeWeights(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const auto& arguments = op.schema().arguments();
    const std::size_t first = stack.size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool written = op.schema().is_mutable({c10::SchemaArgType::input, i});
      replace(stack[first + i], op.operator_name().name, written);
    }
  }

  // Stores take what the operator wrote.
  void write_back() const {
    for (const Pair& each : pairs_)
      if (each.is_written) stored(each.weight)->assign(in_order(each));
  }

  // An in-place operator returns its argument.
  void replace_results(torch::jit::Stack& stack, std::size_t results) const {
    for (std::size_t i = stack.size() - results; i < stack.size(); ++i)
      if (stack[i].isTensor()) stack[i] = original(stack[i].toTensor());
  }

 private:
  struct Pair {
    Tensor weight, whole;
    bool is_written;
  };

  Tensor replacement(const Tensor& tensor, const std::string& op, bool written) {
    if (stored(tensor) == nullptr) return tensor;
    pairs_.push_back({tensor, whole(tensor, op), written});
    return pairs_.back().whole;
  }

  void replace(c10::IValue& value, const std::string& op, bool written) {
    if (value.isTensor()) {
      value = replacement(value.toTensor(), op, written);
    } else if (value.isTensorList()) {
      std::vector<Tensor> all = value.toTensorVector();
      for (Tensor& each : all) each = replacement(each, op, written);
      value = std::move(all);
    }
  }

  static Tensor in_order(const Pair& pair) {
    return carried(pair.weight)->transposed ? pair.whole.transpose(-2, -1) : pair.whole;
  }

  [[nodiscard]] Tensor original(const Tensor& result) const {
    for (const Pair& each : pairs_)
      if (each.is_written && result.is_same(each.whole)) return each.weight;
    return result;
  }

  std::vector<Pair> pairs_;
};

bool has_stored(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto any = [](const c10::IValue& value) {
    if (value.isTensor()) return stored(value.toTensor()) != nullptr;
    if (!value.isTensorList()) return false;
    for (const Tensor& each : value.toTensorVector())
      if (stored(each) != nullptr) return true;
    return false;
  };
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size()))
    if (any(value)) return true;
  return false;
}

// ---- Copies ----

Tensor& copy_(Tensor& to, const Tensor& from, bool non_blocking) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  if (Store* const store = stored(to); store != nullptr) {
    const bool is_alike =
        stored(from) != nullptr && from.sizes() == to.sizes() && !carried(from)->transposed;
    if (carried(to)->transposed)
      store->assign(whole(from, "aten::copy_").expand(to.sizes()).transpose(-2, -1));
    else
      store->assign(is_alike ? from : whole(from, "aten::copy_").expand(to.sizes()));
    return to;
  }
  return to.copy_(whole(from, "aten::copy_"), non_blocking);
}

Tensor clone(const Tensor& weight, std::optional<at::MemoryFormat> format) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  const Store* const store = stored(weight);
  if (store == nullptr) return at::clone(weight, format);
  return hollow(weight, store->copy(weight.device()), weight.device(), weight.scalar_type());
}

Tensor to_copy(const Tensor& weight, std::optional<at::ScalarType> type,
               std::optional<at::Layout> layout, std::optional<at::Device> device,
               std::optional<bool> pinned, bool non_blocking,
               std::optional<at::MemoryFormat> format) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  const Store* const store = stored(weight);
  if (store == nullptr)
    return at::_to_copy(weight, type, layout, device, pinned, non_blocking, format);
  const c10::Device there = device.value_or(weight.device());
  return hollow(weight, store->copy(there), there, type.value_or(weight.scalar_type()));
}

Tensor detach(const Tensor& weight) {
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  const Tensor alias = at::detach(weight);
  const Carried* const its = carried(weight);
  if (its != nullptr && its->store) attach(alias, nullptr, its->store, its->transposed);
  return alias;
}

// Operators that use sizes, type and device only, or the graph. `to` calls _to_copy.
constexpr const char* kWithoutValues[] = {"_backward",
                                          "_fw_primal",
                                          "_has_compatible_shallow_copy_type",
                                          "_version",
                                          "data",
                                          "detach_",
                                          "empty_like",
                                          "full_like",
                                          "is_complex",
                                          "is_floating_point",
                                          "is_leaf",
                                          "is_pinned",
                                          "is_same_size",
                                          "is_signed",
                                          "new_empty",
                                          "new_empty_strided",
                                          "new_full",
                                          "new_ones",
                                          "new_zeros",
                                          "ones_like",
                                          "output_nr",
                                          "rand_like",
                                          "randn_like",
                                          "requires_grad_",
                                          "retain_grad",
                                          "retains_grad",
                                          "set_data",
                                          "size.int",
                                          "stride.int",
                                          "sym_numel",
                                          "sym_size.int",
                                          "sym_storage_offset",
                                          "sym_stride.int",
                                          "to.device",
                                          "to.dtype",
                                          "to.dtype_layout",
                                          "to.other",
                                          "zeros_like"};

}  // namespace

Tensor hollow(const Tensor& like, std::shared_ptr<Store> store, c10::Device device,
              at::ScalarType type) {
  const Tensor made = at::empty({0}, at::TensorOptions(device).dtype(type));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  const Carried* const its = carried(like);
  attach(made, nullptr, std::move(store), its != nullptr && its->transposed);
  return made;
}

Tensor whole(const Tensor& weight, const std::string& op) {
  const Carried* const its = carried(weight);
  if (its == nullptr || !its->store) return weight;
  count(op);
  const at::NoGradGuard no_grad;
  const Tensor all = its->store->whole(weight.scalar_type());
  return its->transposed ? all.transpose(-2, -1) : all;
}

void with_whole_weights(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  if (!has_stored(op, *stack))
    return op.redispatchBoxed(
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kCarriedKey), stack);
  const c10::impl::ExcludeDispatchKeyGuard once(kCarriedKey);
  const WholeWeights weights(op, *stack);
  op.callBoxed(stack);
  weights.write_back();
  weights.replace_results(*stack, op.schema().returns().size());
}

void add_stored_operators(torch::Library& aten) {
  aten.impl("copy_", copy_);
  aten.impl("clone", clone);
  aten.impl("_to_copy", to_copy);
  aten.impl("detach", detach);
  for (const char* const name : kWithoutValues)
    aten.impl(name, torch::CppFunction::makeFallthrough());
}

void register_carried_operators() {
  static std::once_flag flag;
  std::call_once(flag, [] {
    static torch::Library& all =
        *new torch::Library(torch::Library::IMPL, "_", kCarriedKey, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFromBoxedFunction<&with_whole_weights>());
    static torch::Library& aten =
        *new torch::Library(torch::Library::IMPL, "aten", kCarriedKey, __FILE__, __LINE__);
    add_products(aten);
    add_stored_operators(aten);
  });
}

}  // namespace detail

std::map<std::string, std::int64_t> whole_weights() {
  detail::Counts& all = detail::counts();
  const std::lock_guard lock(all.mutex);
  return all.by_operator;
}

}  // namespace headroom::libtorch
