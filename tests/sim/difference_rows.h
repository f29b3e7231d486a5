// Where the two rule sets part: a row for every operator whose rule asks which set its card
// follows.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <map>
#include <string>

namespace headroom::sim::testing {

// Memory that lives only while the operator runs is not in the bytes. It may differ, too, but only
// in an operator that has a row, whose words then say so; the bytes may be 0.
struct DifferenceRow {
  // The bytes that CUDA's kernel keeps in its results and the CPU's does not; negative: less.
  std::int64_t (*bytes)(const torch::jit::Stack& arguments);
  const char* words;
  const char* source;
};

// By the names of native_functions.yaml: "where.self".
[[nodiscard]] const std::map<std::string, DifferenceRow>& difference_rows();

}  // namespace headroom::sim::testing
