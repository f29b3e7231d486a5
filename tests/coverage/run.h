// Runs a case once and writes down what came of it: every result, gradient, parameter and buffer,
// and, on a simulated card, every event of the card's memory.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "case.h"
#include "headroom/sim/card.h"

namespace headroom::coverage {

// The layout of a tensor's memory, and its values on the host.
struct Seen {
  std::string name;
  std::string shape;  // sizes, strides, type, bytes of the storage
  Tensor values;      // undefined where there are none
};

struct Happened {
  trace::Kind kind;
  Bytes bytes;
  std::uint32_t stream;
  std::string operation;
  bool operator==(const Happened&) const = default;
};

struct Outcome {
  std::vector<Seen> tensors;
  std::vector<Happened> events;
  std::uint64_t values_read = 0;  // while there were none
};

[[nodiscard]] Outcome run_on_cpu(const Case& one, const Setting& setting);
// On a fresh card of 24 GiB.
[[nodiscard]] Outcome run_simulated(const Case& one, const Setting& setting, sim::Mode mode);

[[nodiscard]] testing::AssertionResult same_shapes(const Outcome& one, const Outcome& other);
[[nodiscard]] testing::AssertionResult same_events(const Outcome& one, const Outcome& other);
[[nodiscard]] testing::AssertionResult same_values(const Outcome& one, const Outcome& other);

}  // namespace headroom::coverage
