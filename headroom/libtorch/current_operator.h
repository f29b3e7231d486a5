// The LibTorch operator that runs on this thread, for allocators, which see only a request. Costs
// about 50 ns per operator while an OperatorNames is alive, and nothing otherwise.
//
//   const OperatorNames names;       // from here on
//   ... in an allocator: current_operator()  // "aten::mm"
//
// Skips an operator that only allocates for another one (aten::empty inside aten::mm).
// Threads: an OperatorNames works for all threads.
#pragma once

#include <string>

namespace headroom::libtorch {

// Enables current_operator() while at least one is alive.
class OperatorNames {
 public:
  OperatorNames();
  ~OperatorNames();
  OperatorNames(const OperatorNames&) = delete;
  OperatorNames& operator=(const OperatorNames&) = delete;
};

// On any device, unlike sim::current_operator(): "aten::where.self". Empty if no operator runs on
// this thread, or if it began without an OperatorNames.
[[nodiscard]] std::string current_operator();

}  // namespace headroom::libtorch
