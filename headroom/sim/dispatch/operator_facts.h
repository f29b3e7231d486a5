// Properties of an operator, looked up once and kept.
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
  const rules::Entry* entry = nullptr;  // the entry of Headroom's own table; null if there is none
  bool on_meta = false;                 // LibTorch gives its shapes in C++
  c10::DispatchKey meta_key = c10::DispatchKey::Meta;  // the key under which that kernel is found
  bool on_python_meta = false;  // in a Python process: torch has a Meta kernel in Python,
  bool is_structured = false;   // which hides a structured kernel of C++ (structured.h)
  bool on_cpu = false;
  bool is_view = false;              // its results share the arguments' memory
  bool uses_memory = true;           // reads its tensors' memory, or writes it
  bool takes_host_tensors = false;   // beside the card's, as CUDA does
  bool writes_out = false;           // has out= arguments, which may grow
  bool depends_on_values = false;    // its results' shapes do, by LibTorch's tag or our table
  bool may_need_values = false;      // or they may: with a mask as an index
  int generator_argument = -1;       // -1: draws no random numbers
  std::vector<std::size_t> written;  // indices of the arguments that it writes into
  bool overwrites = false;           // writes all their elements, reading none
  bool can_know = false;             // its results follow from its arguments' values alone
  bool is_pointwise = false;         // a result's element comes from those at the same place
  bool keeps_alike = false;          // equal elements give equal results, however many they are
  bool chooses = false;              // each element of its results is one of its arguments'
  // One known argument of this value decides the result, whatever the other argument is.
  enum class Decides { nothing, zero, truth } decides = Decides::nothing;

  [[nodiscard]] bool is_written(std::size_t argument) const {
    return std::find(written.begin(), written.end(), argument) != written.end();
  }
  [[nodiscard]] bool has_rule() const { return entry != nullptr && entry->rule.arguments > 0; }
  [[nodiscard]] bool has_fill() const { return entry != nullptr && entry->fill.arguments > 0; }
  [[nodiscard]] bool widens_half() const { return entry != nullptr && entry->widens_half; }
  [[nodiscard]] bool uses_cublas() const { return entry != nullptr && entry->uses_cublas; }
};

// True if torch for Python has put its own Meta kernels before those of C++.
[[nodiscard]] bool in_python();

[[nodiscard]] const Operator& operator_of(const c10::OperatorHandle& handle);

}  // namespace headroom::sim::detail
