#include "headroom/sim/dispatch/operator_facts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/sim/device/thread_value.h"
#include "headroom/sim/rules/families.h"

namespace headroom::sim::detail {
namespace {

bool returns_views_only(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return false;
  for (const c10::Argument& result : schema.returns()) {
    const c10::AliasInfo* alias = result.alias_info();
    if (alias == nullptr || alias->isWrite()) return false;
  }
  return true;
}

int generator_argument(const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].type()->str().find("Generator") != std::string::npos)
      return static_cast<int>(i);
  return -1;
}

bool writes_out(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& argument) {
                       return argument.kwarg_only() && argument.alias_info() != nullptr &&
                              argument.alias_info()->isWrite();
                     });
}

std::vector<std::size_t> written_arguments(const c10::FunctionSchema& schema) {
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.push_back(i);
  }
  return written;
}

// Random integers are few, and a program may decide by them: lengths, an order.
bool draws_whole_numbers(std::string_view name) {
  return name.starts_with("aten::random_") || name == "aten::randperm.generator_out";
}

bool is_fill(std::string_view name) {
  return name == "aten::fill_.Scalar" || name == "aten::fill_.Tensor" || name == "aten::zero_";
}

Operator::Decides what_decides(std::string_view name) {
  if (name == "aten::mul.Tensor" || name == "aten::bitwise_and.Tensor" ||
      name == "aten::logical_and")
    return Operator::Decides::zero;
  if (name == "aten::bitwise_or.Tensor" || name == "aten::logical_or")
    return Operator::Decides::truth;
  return Operator::Decides::nothing;
}

// These take indices and lengths from the host, too; foreach operators then run tensor by tensor.
// Source: aten/src/ATen/native/native_functions.yaml, `device_check: NoCheck`, and those that CUDA
// has no kernel of its own for.
bool takes_host_tensors(std::string_view name) {
  static constexpr std::array kBeginnings{
      "aten::index.",        "aten::index_put",    "aten::_index_put_impl", "aten::_unsafe_index",
      "aten::_foreach",      "aten::_fused_",      "aten::_pack_padded",    "aten::_pad_packed",
      "aten::_ctc_loss",     "aten::ctc_loss",     "aten::lstm.data",       "aten::gru.data",
      "aten::rnn_tanh.data", "aten::rnn_relu.data"};
  return std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// LibTorch has a fallback for Meta that only throws, so some kernel is always found there.
bool has_kernel_for_meta(const c10::OperatorHandle& handle, bool in_python) {
  using c10::DispatchKey;
  for (const DispatchKey key :
       {DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeExplicitAutogradNonFunctional,
        DispatchKey::CompositeImplicitAutograd})
    if (handle.hasKernelForDispatchKey(key)) return true;
  return !in_python && handle.hasKernelForDispatchKey(DispatchKey::Meta);
}

// In a Python process torch registers Meta kernels written in Python, also for operators whose
// shapes C++ gives in another way. They are slow, and some refuse arguments that a card accepts (a
// number on the host as masked_fill's value), so they come last.
bool is_python_meta(const c10::OperatorHandle& handle) {
  if (!handle.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  const std::string registered = handle.dumpState();
  const std::size_t begin = registered.find("\nMeta: ") + 1;
  return registered.substr(begin, registered.find('\n', begin) - begin).find(".py:") !=
         std::string::npos;
}

// LibTorch tags few in-place operators; they are like their functional forms.
bool is_pointwise(const c10::OperatorHandle& handle) {
  const c10::OperatorName& name = handle.operator_name();
  if (handle.hasTag(at::Tag::pointwise) || is_fill(c10::toString(name))) return true;
  if (!name.name.ends_with('_')) return false;
  const auto other = c10::Dispatcher::singleton().findSchema(
      {name.name.substr(0, name.name.size() - 1), name.overload_name});
  return other && other->hasTag(at::Tag::pointwise);
}

// A backend without any kernels: for it LibTorch finds the operators composed in C++.
constexpr c10::DispatchKey kNobodys = c10::DispatchKey::IPU;

Operator look_up(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  Operator op;
  op.name = c10::toString(handle.operator_name());
  op.arguments = schema.arguments().size();
  if (op.name.starts_with("aten::")) op.entry = rules::table().find(op.name.substr(6));
  op.on_python_meta = is_python_meta(handle);
  op.on_meta = has_kernel_for_meta(handle, op.on_python_meta);
  op.is_structured =
      op.on_python_meta &&
      handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
  op.meta_key = op.on_python_meta ? kNobodys : c10::DispatchKey::Meta;
  op.on_cpu = handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  op.takes_host_tensors = takes_host_tensors(op.name);
  op.is_view = returns_views_only(schema);
  op.uses_memory = !op.is_view && op.name != "aten::record_stream" && op.name != "aten::is_set_to";
  op.generator_argument = generator_argument(schema);
  op.writes_out = writes_out(schema);
  op.written = written_arguments(schema);
  op.overwrites = op.writes_out || is_fill(op.name) || op.name.starts_with("aten::random_");
  op.can_know = !op.is_view && (op.generator_argument < 0 || draws_whole_numbers(op.name)) &&
                (op.on_cpu || op.has_fill()) && !(schema.returns().empty() && op.written.empty());
  op.is_pointwise = is_pointwise(handle);
  const std::string_view base = std::string_view(op.name).substr(0, op.name.find('.'));
  op.keeps_alike = op.is_pointwise || base == "aten::all" || base == "aten::any";
  op.chooses = base == "aten::where";
  op.decides = what_decides(op.name);
  op.depends_on_values = (op.entry != nullptr && !op.entry->needs_values.empty()) ||
                         handle.hasTag(at::Tag::dynamic_output_shape) ||
                         handle.hasTag(at::Tag::data_dependent_output);
  op.may_need_values = op.depends_on_values || op.name.starts_with("aten::_index_put_impl_") ||
                       op.name.starts_with("aten::repeat_interleave");
  const auto fits = [&](const rules::Kernel& kernel) {
    return kernel.arguments == 0 || kernel.arguments == op.arguments;
  };
  if (op.entry != nullptr && !(fits(op.entry->rule) && fits(op.entry->fill)))
    throw InternalError(expectation(
        "sim", "rules with the operator's " + std::to_string(op.arguments) + " arguments", op.name,
        ""));
  return op;
}

// Never destroyed: destructors of global objects may run operators.
const Operator& known_to_all(const c10::OperatorHandle& handle) {
  static auto& mutex = *new std::shared_mutex;
  static auto& known =
      *new std::unordered_map<c10::OperatorHandle, std::unique_ptr<const Operator>>;
  {
    const std::shared_lock lock(mutex);
    if (const auto found = known.find(handle); found != known.end()) return *found->second;
  }
  auto made = std::make_unique<const Operator>(look_up(handle));
  const std::lock_guard lock(mutex);
  return *known.try_emplace(handle, std::move(made)).first->second;
}

}  // namespace

bool in_python() {
  static const bool known =
      is_python_meta(c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "Tensor"));
  return known;
}

const Operator& operator_of(const c10::OperatorHandle& handle) {
  // After a thread's first call of an operator, the look-up takes no lock.
  auto* const seen = thread_value<std::unordered_map<c10::OperatorHandle, const Operator*>>();
  if (seen == nullptr) return known_to_all(handle);
  if (const auto found = seen->find(handle); found != seen->end()) return *found->second;
  return *((*seen)[handle] = &known_to_all(handle));
}

}  // namespace headroom::sim::detail
