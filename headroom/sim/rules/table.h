// Headroom's own shape rules: what an operator allocates on a CUDA card, where LibTorch has no Meta
// kernel in C++, or one that does not know CUDA's sizes. They are looked up before Meta.
//
// A rule is a function with the operator's signature. It runs on the card's tensors themselves:
// what it makes with at::empty is charged to the card, temporaries too, and freed when it returns.
// It never looks at data (in compute mode the CPU's kernel fills the results afterwards), so it
// works the same in both modes:
//
//   table.rule("native_dropout", [](const Tensor& x, double, std::optional<bool>) {
//     return std::tuple(at::empty_like(x), at::empty_like(x, x.options().dtype(at::kBool)));
//   });
//
// Where the CPU has no kernel of that name, or one that gives other numbers than a CPU model would
// see, a fill says how the data is made in compute mode. It has the operator's signature as well
// and runs on CPU tensors:
//
//   table.fill("native_dropout", [](const Tensor& x, double p, std::optional<bool> train) {...});
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace headroom::sim::rules {

// Thrown by a rule whose shapes would depend on values, and only then: in compute mode the CPU's
// kernel says what comes out, shape-only it is an error that gives this advice.
struct NeedsValues {
  std::string advice;
};

struct Kernel {
  c10::KernelFunction function;
  std::size_t arguments = 0;  // of the function: a rule for another operator shows at once
};

// Where the two rule sets part: what CUDA's kernel keeps in its results and the CPU's does not.
// What lives only while the operator runs is not in these bytes, but it may differ, too, only in an
// operator that has a row: then its words say so, and the bytes may be 0.
struct Difference {
  Kernel bytes;       // the operator's arguments to an int64: more on CUDA; negative: less
  std::string words;  // "the mask has a byte an element, on the CPU the input's type"
  std::string source;
};

// What CUDA's kernel for an operator that makes few numbers of many keeps of each on its way.
enum class Sums {
  nothing,     // it is none, or has a kernel of its own
  numbers,     // a sum: of the type that sums are kept in
  themselves,  // one of them: the largest, whether any is true
  places,      // a number and where it is
  moments,     // mean and deviation
};

struct Entry {
  Kernel rule;
  Kernel fill;
  Difference difference;
  std::string refused;       // not empty: why in neither mode, and what to do
  std::string needs_values;  // not empty: shapes always depend on values; what to do without them
  bool widens_half = false;  // the CPU has no kernel of half precision
  Sums sums = Sums::nothing;
  bool uses_cublas = false;  // a matrix product, which needs cuBLAS's workspace on CUDA
};

class Table {
 public:
  // Operators are named as in native_functions.yaml: "where.self".
  template <typename Function>
  void rule(std::string_view name, Function&& function) {
    at(name).rule = kernel(std::forward<Function>(function));
  }
  template <typename Function>
  void fill(std::string_view name, Function&& function) {
    at(name).fill = kernel(std::forward<Function>(function));
  }
  // Every rule that asks rules_now() has its row here; a test holds the rule against it.
  template <typename Function>
  void differs(std::string_view name, Function&& bytes, std::string_view words,
               std::string_view source) {
    at(name).difference = {kernel(std::forward<Function>(bytes)), std::string(words),
                           std::string(source)};
  }
  void refuse(std::string_view name, std::string_view why) { at(name).refused = why; }
  void needs_values(std::string_view name, std::string_view advice) {
    at(name).needs_values = advice;
  }
  // CUDA has kernels of half precision, the CPU has not: its kernel for float makes the data.
  void widens_half(std::string_view name) { at(name).widens_half = true; }
  void uses_cublas(std::string_view name) { at(name).uses_cublas = true; }
  void sums(std::string_view name, Sums what) { at(name).sums = what; }

  // Null: nothing of ours.
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
