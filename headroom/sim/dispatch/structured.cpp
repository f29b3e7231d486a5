#include "headroom/sim/dispatch/structured.h"

#include "headroom/sim/dispatch/operator_facts.h"
#include "headroom/sim/dispatch/registration.h"

namespace headroom::sim::detail {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// The first of all keys; LibTorch keeps it for extensions that see every call of a thread.
constexpr DispatchKey kEveryCall = DispatchKey::DeferredInit;

// The operator that this thread runs, without the underscore of its in-place form.
thread_local std::string_view structured_name;

// The last arguments are the out= ones, which are the results.
void give_back_outs(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  const auto arguments = static_cast<std::ptrdiff_t>(schema.arguments().size());
  const auto results = static_cast<std::ptrdiff_t>(schema.returns().size());
  stack.erase(stack.end() - arguments, stack.end() - results);
}

void on_call(const c10::OperatorHandle& handle, DispatchKeySet keys, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  // Only tensors without data: a kernel's intermediate numbers on the host must be right.
  const bool has_no_data = keys.has_backend(c10::BackendComponent::MetaBit);
  if (has_no_data && op.writes_out && handle.schema().name() == structured_name) {
    give_back_outs(handle.schema(), *stack);
  } else if (has_no_data && op.is_structured) {
    const StructuredScope scope(handle);
    handle.redispatchBoxed(DispatchKeySet(op.meta_key), stack);
  } else {
    handle.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kEveryCall), stack);
  }
}

}  // namespace

void register_structured() {
  library(kEveryCall, "_").fallback(torch::CppFunction::makeFromBoxedFunction<&on_call>());
}

StructuredScope::StructuredScope(const c10::OperatorHandle& handle)
    : before_(structured_name), every_call_(kEveryCall) {
  structured_name = handle.schema().name();
  if (structured_name.ends_with('_')) structured_name.remove_suffix(1);
}

StructuredScope::~StructuredScope() {
  structured_name = before_;
}

}  // namespace headroom::sim::detail
