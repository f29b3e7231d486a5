// Shapes that follow from an operator's schema alone, for operators without a rule: an operator
// that writes in place changes no shape, and out= has the shape of the same operator's result
// without out=.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace headroom::sim::detail {

// Replaces the arguments at the end of the stack by the results, on the card and without data.
// False if the schema does not give them; the stack is unchanged then.
[[nodiscard]] bool plan_from_schema(const c10::OperatorHandle& handle, torch::jit::Stack& stack);

// The way in which it can be planned so: for the table of operators in the docs.
enum class Derived { no, in_place, out };
[[nodiscard]] Derived derived_from_schema(const c10::OperatorHandle& handle);

// The operator without out=, such as "where.self" for "where.self_out": the same arguments, but new
// results. std::nullopt if there is none.
[[nodiscard]] std::optional<c10::OperatorHandle> without_out(const c10::OperatorHandle& handle);

}  // namespace headroom::sim::detail
