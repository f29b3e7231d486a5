// Plans an operator's results - shapes, strides, types and memory, not data - the same way in both
// modes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

struct Plan {
  bool made = false;                // the results, without data, have replaced the arguments
  std::vector<c10::Storage> grown;  // storages of out= arguments that grew
  // Set if the shapes depend on values: the advice on what to use instead.
  std::optional<std::string> needs_values;
  // Set if LibTorch has no shapes for an operator that this one is composed of: LibTorch's words.
  std::string unknown_part;
};

// Throws c10::NotImplementedError for an operator that the table refuses.
[[nodiscard]] Plan plan(Call& call);

// Throws if an operator without a plan cannot run on a card without data: its shapes depend on
// values, or the user has not agreed to wait for the CPU's kernel over zeros.
void check_slow_way(const Call& call, const Plan& plan);

}  // namespace headroom::sim::detail
