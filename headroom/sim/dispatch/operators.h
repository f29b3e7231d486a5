// What is known of an operator, looked up once and kept.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>
#include <vector>

#include "headroom/sim/rules/table.h"

namespace headroom::sim::detail {

struct Operator {
  std::string name;  // "aten::where.self"
  std::size_t arguments = 0;
  const rules::Entry* entry = nullptr;  // what Headroom's own table has; null: nothing
  bool on_meta = false;                 // LibTorch gives its shapes,
  c10::DispatchKey meta_key = c10::DispatchKey::Meta;  // by the kernel that is found there
  bool on_python_meta = false;                         // torch does, in a Python process,
  bool is_structured = false;                          // before a kernel of C++ (structured.h)
  bool on_cpu = false;
  bool is_view = false;              // its results share the arguments' memory
  bool takes_host_tensors = false;   // besides the card's, as CUDA does
  bool writes_out = false;           // it has out= arguments, which may grow
  bool depends_on_values = false;    // the shapes of its results, says LibTorch or our table
  int generator_argument = -1;       // -1: it draws no random numbers
  std::vector<std::size_t> written;  // the arguments that it writes into
  bool overwrites = false;           // and every element of them, without having read any
  bool can_know = false;             // its results' values follow from its arguments' alone
  bool is_pointwise = false;         // each element of its results from those at the same place
  bool keeps_alike = false;          // equal elements give equal ones, however many they are
  bool chooses = false;              // its results' elements are elements of its arguments
  // A known argument of this alone decides the result, whatever the other one is.
  enum class Decides { nothing, zero, truth } decides = Decides::nothing;

  [[nodiscard]] bool is_written(std::size_t argument) const {
    return std::find(written.begin(), written.end(), argument) != written.end();
  }
  [[nodiscard]] bool has_rule() const { return entry != nullptr && entry->rule.arguments > 0; }
  [[nodiscard]] bool has_fill() const { return entry != nullptr && entry->fill.arguments > 0; }
  [[nodiscard]] bool widens_half() const { return entry != nullptr && entry->widens_half; }
  [[nodiscard]] bool uses_cublas() const { return entry != nullptr && entry->uses_cublas; }
};

// Whether torch for Python has put its own Meta kernels before those of C++.
[[nodiscard]] bool in_python();

[[nodiscard]] const Operator& operator_of(const c10::OperatorHandle& handle);

}  // namespace headroom::sim::detail
