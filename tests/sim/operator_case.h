// Calls of aten operators, written as one line each (operator_cases.txt says how), for a test that
// makes every operator's arguments again and again: of several types and layouts, on several
// devices.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace headroom::sim::testing {

// The form of a call's tensors.
struct Variant {
  c10::ScalarType type = c10::ScalarType::Float;  // of x and f
  enum class Layout { contiguous, turned, with_gaps, channels_last } layout = Layout::contiguous;

  [[nodiscard]] std::string str() const;
};

struct OperatorCase {
  std::string marks;               // see operator_cases.txt
  std::vector<std::string> words;  // the arguments
};

// By operator. Throws std::runtime_error with the line for what it cannot read.
using OperatorCases = std::multimap<std::string, OperatorCase>;
inline constexpr const char* kOperatorCases = HEADROOM_SOURCE_DIR "/tests/sim/operator_cases.txt";
[[nodiscard]] OperatorCases read_operator_cases(const std::string& file);

// The cases of an operator without its own: all shapes alike, broadcast, ...
[[nodiscard]] std::vector<OperatorCase> usual_cases(const c10::FunctionSchema& schema);

[[nodiscard]] std::vector<Variant> variants_of(const OperatorCase& one);

// The arguments on the CPU; out= arguments are empty, of these types. The same every time.
[[nodiscard]] torch::jit::Stack arguments_of(const c10::FunctionSchema& schema,
                                             const OperatorCase& one, const Variant& variant,
                                             const std::vector<c10::ScalarType>& out_types);

[[nodiscard]] bool is_out(const c10::Argument& argument);

// Named as in native_functions.yaml; nothing: LibTorch does not know it.
[[nodiscard]] std::optional<c10::OperatorHandle> find_operator(const std::string& name);

// Its own; those of the same operator that returns new results; those of its family (`name*`); the
// usual ones.
[[nodiscard]] std::vector<OperatorCase> cases_of(const OperatorCases& cases,
                                                 const std::string& name,
                                                 const c10::OperatorHandle& op);

[[nodiscard]] std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack);

// The same storages, sizes and strides on a card.
[[nodiscard]] torch::jit::Stack onto(const c10::FunctionSchema& schema,
                                     const torch::jit::Stack& stack, c10::Device device);

}  // namespace headroom::sim::testing
