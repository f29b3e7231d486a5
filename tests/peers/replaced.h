// Functions of LibTorch that CUDA composes of other operators than the CPU, attention for one. A
// row of sim/rules/table.h gives the bytes that an operator which both run keeps more on CUDA; a
// row here gives, from the function's arguments, all that CUDA's operators make. The rows are
// stated independently of the rules, and difference_test.cpp holds the rules against them.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace headroom::nets {

struct OnCuda {
  struct Pass {
    std::vector<std::int64_t> results;  // bytes of each
    std::int64_t most = 0;              // of what the pass makes, at a time: results and all else
  };
  Pass forward;   // results: in the function's order
  Pass backward;  // results: of the gradients that are wanted, in any order
  // Bytes that backward needs, from forward's end to its own end.
  std::int64_t saved = 0;  // neither results nor arguments
  std::vector<std::size_t> saved_results, saved_arguments;
};

struct Replaced {
  std::string_view function;  // "scaled_dot_product_attention"
  // Nothing: for these arguments both rule sets run the same, or the row does not know better.
  std::optional<OnCuda> (*on_cuda)(at::ArrayRef<c10::IValue> arguments);
  std::string_view words;
  std::string_view source;
};

[[nodiscard]] std::span<const Replaced> replaced();

}  // namespace headroom::nets
