// Shapes that follow from an operator's schema alone, where nobody has a rule for it: what writes
// in place changes no shape, and what writes into out= has the shapes of the same operator without.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace headroom::sim::detail {

// The arguments at the end of the stack give way to the results, on the card and without data.
// False: the schema says nothing; the stack is as it was.
[[nodiscard]] bool plan_from_schema(const c10::OperatorHandle& handle, torch::jit::Stack& stack);

// Whether it may be planned so: for the table of what Headroom does with each operator.
enum class Derived { no, in_place, out };
[[nodiscard]] Derived derived_from_schema(const c10::OperatorHandle& handle);

// "where.self_out" has "where.self": the same arguments, but new results. Nothing: there is none.
[[nodiscard]] std::optional<c10::OperatorHandle> without_out(const c10::OperatorHandle& handle);

}  // namespace headroom::sim::detail
