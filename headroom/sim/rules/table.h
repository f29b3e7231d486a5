// Headroom's own shape rules: an operator's allocations on a CUDA card, where LibTorch has no Meta
// kernel in C++, or one that does not know CUDA's sizes. They are looked up before Meta.
//
// A rule is a function with the operator's signature that runs on the card's tensors. Its at::empty
// tensors are charged to the card, temporaries included, and freed when it returns. It never looks
// at data (in compute mode the CPU's kernel fills the results afterwards), so it works the same in
// both modes:
//
//   table.rule("native_dropout", [](const Tensor& x, double, std::optional<bool>) {
//     return std::tuple(at::empty_like(x), at::empty_like(x, x.options().dtype(at::kBool)));
//   });
//
// A fill makes the data in compute mode where the CPU has no kernel of that name, or one whose
// numbers differ from those of a model on the CPU. It has the same signature and runs on CPU
// tensors:
//
//   table.fill("native_dropout", [](const Tensor& x, double p, std::optional<bool> train) {...});
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headroom::sim::rules {

// The operator "where.self" of native_functions.yaml in LibTorch's dispatcher.
[[nodiscard]] c10::OperatorName in_aten(std::string_view name);

// Thrown only by a rule whose shapes depend on values. In compute mode the CPU's kernel then makes
// the results; in shape-only mode it is an error with this advice.
struct NeedsValues {
  std::string advice;
};

struct Kernel {
  c10::KernelFunction function;
  std::size_t arguments = 0;  // checked, so that a rule for another operator is found at once
};

// The partial results that CUDA's kernel keeps for each result of a reduction.
enum class Sums {
  nothing,     // no reduction, or one with its own kernel
  numbers,     // a sum, in the accumulation type
  themselves,  // an element: the largest, whether any is true
  places,      // a number and its place
  moments,     // mean and deviation
};

struct Entry {
  Kernel rule;
  Kernel fill;
  std::string refused;       // unless empty, it is refused in both modes; says why, and what to do
  std::string needs_values;  // unless empty, shapes always depend on values; says what to use then
  bool widens_half = false;  // the CPU has no half-precision kernel
  Sums sums = Sums::nothing;
  bool uses_cublas = false;  // a matrix product, which needs cuBLAS's workspace on CUDA
};

class Table {
 public:
  // Names are those of native_functions.yaml: "where.self".
  template <typename Function>
  void rule(std::string_view name, Function&& function) {
    at(name).rule = kernel(std::forward<Function>(function));
  }
  template <typename Function>
  void fill(std::string_view name, Function&& function) {
    at(name).fill = kernel(std::forward<Function>(function));
  }
  // Rules of operators of which few arguments matter: the results, from all arguments.
  using Arguments = c10::ArrayRef<c10::IValue>;
  using Make = std::function<std::vector<at::Tensor>(Arguments arguments)>;
  void rules_of(std::initializer_list<const char*> names, const Make& make);
  // For operators with one result: it has the sizes and the type of the tensor at this position,
  // contiguous, or laid out as `like` of results.h does.
  void contiguous_as(std::size_t argument, std::initializer_list<const char*> names);
  void like(std::size_t argument, std::initializer_list<const char*> names);
  // For operators on each element of all tensors among the arguments.
  void elementwise(std::initializer_list<const char*> names,
                   std::optional<c10::ScalarType> type = {});
  void refuse(std::string_view name, std::string_view why) { at(name).refused = why; }
  void needs_values(std::string_view name, std::string_view advice) {
    at(name).needs_values = advice;
  }
  // CUDA has half-precision kernels, the CPU has not: its float kernel makes the data.
  void widens_half(std::string_view name) { at(name).widens_half = true; }
  void uses_cublas(std::string_view name) { at(name).uses_cublas = true; }
  void sums(std::string_view name, Sums what) { at(name).sums = what; }

  // Null if Headroom has no entry.
  [[nodiscard]] const Entry* find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const std::unordered_map<std::string, Entry>& entries() const { return entries_; }

 private:
  template <typename Function>
  static Kernel kernel(Function&& function) {
    using Traits = c10::guts::infer_function_traits_t<std::decay_t<Function>>;
    if constexpr (std::is_function_v<std::remove_reference_t<Function>>)
      return {c10::KernelFunction::makeFromUnboxedRuntimeFunction(&function),
              Traits::number_of_parameters};
    else
      return {c10::KernelFunction::makeFromUnboxedLambda(std::forward<Function>(function)),
              Traits::number_of_parameters};
  }
  Entry& at(std::string_view name) { return entries_[std::string(name)]; }

  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace headroom::sim::rules
