#include "headroom/sim/dispatch/derived.h"

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <unordered_map>

#include "headroom/libtorch/tensors_in.h"
#include "headroom/sim/device/alias.h"
#include "headroom/sim/dispatch/operator_facts.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::Argument;
using c10::FunctionSchema;
using c10::OperatorHandle;
using torch::jit::Stack;

bool is_written(const Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}
bool is_out(const Argument& argument) {
  return argument.kwarg_only() && is_written(argument);
}

// The index of the argument that this result is; -1: it is new.
int argument_returned(const FunctionSchema& schema, const Argument& result) {
  if (!is_written(result)) return -1;
  const auto& arguments = schema.arguments();
  const auto same = std::find_if(arguments.begin(), arguments.end(), [&](const Argument& argument) {
    return is_written(argument) &&
           argument.alias_info()->beforeSets() == result.alias_info()->beforeSets();
  });
  return same == arguments.end() ? -1 : static_cast<int>(same - arguments.begin());
}

std::vector<const Argument*> inputs_of(const FunctionSchema& schema) {
  std::vector<const Argument*> inputs;
  for (const Argument& argument : schema.arguments())
    if (!is_out(argument)) inputs.push_back(&argument);
  return inputs;
}

bool makes_all_results_from(const FunctionSchema& schema,
                            const std::vector<const Argument*>& inputs) {
  const auto& own = schema.arguments();
  return std::none_of(schema.returns().begin(), schema.returns().end(), is_written) &&
         std::equal(own.begin(), own.end(), inputs.begin(), inputs.end(),
                    [](const Argument& a, const Argument* b) {
                      return a.name() == b->name() && *a.type() == *b->type();
                    });
}

const std::unordered_multimap<std::string, c10::OperatorName>& overloads() {
  static const auto& all = *[] {
    auto* made = new std::unordered_multimap<std::string, c10::OperatorName>;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
      made->emplace(name.name, name);
    return made;
  }();
  return all;
}

// The functional operator's results as Meta tensors, which are not charged to the card.
std::vector<Tensor> planned_on_meta(const OperatorHandle& functional, Stack inputs) {
  const Operator& op = operator_of(functional);
  Aliases aliases(c10::DeviceType::Meta);
  for (c10::IValue& value : inputs) {
    libtorch::replace_tensors(value, [&](const Tensor& tensor) { return aliases.of(tensor); });
    if (value.isGenerator()) value = c10::IValue();
  }
  if (op.has_rule())
    op.entry->rule.function.callBoxed(functional, c10::DispatchKeySet(c10::DispatchKey::Meta),
                                      &inputs);
  else
    functional.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &inputs);
  std::vector<Tensor> results;
  for (const c10::IValue& value : inputs)
    libtorch::for_each_tensor(value, [&](const Tensor& tensor) { results.push_back(tensor); });
  return results;
}

// As LibTorch does for every out=: it takes the new shape, and then also the layout - but not that
// of an argument with gaps, which the operator without out= may return unchanged.
void take_shape(const Tensor& out, const Tensor& planned) {
  if (!on_card(out) || !planned.defined()) return;
  if (at::native::resize_output(out, planned.sizes()) && planned.is_non_overlapping_and_dense())
    out.unsafeGetTensorImpl()->set_sizes_and_strides(planned.sizes(), planned.strides());
}

bool plan_out(const OperatorHandle& handle, Stack& stack, std::size_t first) {
  const std::optional<OperatorHandle> functional = without_out(handle);
  if (!functional) return false;
  const Operator& op = operator_of(*functional);
  if (!op.has_rule() && !op.on_meta) return false;

  const auto& arguments = handle.schema().arguments();
  Stack inputs;
  std::vector<Tensor> outs;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (!is_out(arguments[i]))
      inputs.push_back(value);
    else if (value.isTensor())
      outs.push_back(value.toTensor());
    else
      for (const Tensor& tensor : value.toTensorVector()) outs.push_back(tensor);
  }
  const std::vector<Tensor> planned = planned_on_meta(*functional, std::move(inputs));
  if (planned.size() != outs.size()) return false;
  for (std::size_t i = 0; i < outs.size(); ++i) take_shape(outs[i], planned[i]);
  return true;
}

}  // namespace

std::optional<OperatorHandle> without_out(const OperatorHandle& handle) {
  const std::vector<const Argument*> inputs = inputs_of(handle.schema());
  const auto [begin, end] = overloads().equal_range(handle.operator_name().name);
  for (auto entry = begin; entry != end; ++entry) {
    const auto other = c10::Dispatcher::singleton().findSchema(entry->second);
    if (other && makes_all_results_from(other->schema(), inputs)) return other;
  }
  return {};
}

Derived derived_from_schema(const OperatorHandle& handle) {
  const FunctionSchema& schema = handle.schema();
  const auto& arguments = schema.arguments();
  for (const Argument& result : schema.returns())
    if (argument_returned(schema, result) < 0) return Derived::no;
  if (std::any_of(arguments.begin(), arguments.end(), is_out)) {
    const std::optional<OperatorHandle> functional = without_out(handle);
    if (!functional) return Derived::no;
    const Operator& op = operator_of(*functional);
    return op.has_rule() || op.on_meta ? Derived::out : Derived::no;
  }
  return std::any_of(arguments.begin(), arguments.end(), is_written) ? Derived::in_place
                                                                     : Derived::no;
}

bool plan_from_schema(const OperatorHandle& handle, Stack& stack) {
  const Derived derived = derived_from_schema(handle);
  if (derived == Derived::no) return false;
  const FunctionSchema& schema = handle.schema();
  const std::size_t first = stack.size() - schema.arguments().size();
  if (derived == Derived::out && !plan_out(handle, stack, first)) return false;
  Stack results;
  for (const Argument& result : schema.returns())
    results.push_back(stack[first + static_cast<std::size_t>(argument_returned(schema, result))]);
  stack.resize(first);
  for (c10::IValue& result : results) stack.push_back(std::move(result));
  return true;
}

}  // namespace headroom::sim::detail
