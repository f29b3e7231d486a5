// The bytes alive on a card over a training step: as they were measured, and as the rules' tables
// say that they are under CUDA's rules, from a run under the CPU's and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/peers/calls.h"

namespace headroom::nets {

// An operator that both rule sets run, or a function that they compose differently.
struct Point {
  std::string name;                   // "aten::mm", "gru.input", "gru.input's backward"
  std::int64_t before = 0, most = 0;  // until the next point
  // The table has the memory that its operator keeps, but not its temporaries.
  bool most_is_open = false;
};

[[nodiscard]] std::vector<Point> measured(const Calls& calls);
// `cpu`: a run under the CPU's rules. Throws std::runtime_error where a row does not fit the run.
[[nodiscard]] std::vector<Point> predicted_for_cuda(const Calls& cpu);

// The largest figure; those that are open count with what their results need.
[[nodiscard]] std::int64_t peak_of(const std::vector<Point>& points);

}  // namespace headroom::nets
