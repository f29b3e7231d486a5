// The shapes, strides, types and memory of an operator's results, without its data: the same way in
// both modes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

struct Plan {
  bool made = false;  // the results, on the card but without data, have taken the arguments' place
  std::vector<c10::Storage> grown;  // the memory of out= arguments that had to become larger
  // Why there is none, where that is known. The shapes depend on values: what to do instead.
  std::optional<std::string> needs_values;
  // It is made of other operators, and LibTorch has no shapes for one of them: LibTorch's words.
  std::string unknown_part;
};

// Throws c10::NotImplementedError for an operator that the table refuses.
[[nodiscard]] Plan plan(Call& call);

// Throws if the results of an operator without a plan cannot be told on a card without data: they
// depend on values, or the user has not agreed to wait for the CPU's kernel over zeros.
void check_slow_way(const Call& call, const Plan& plan);

}  // namespace headroom::sim::detail
