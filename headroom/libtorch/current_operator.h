// Which operator of LibTorch runs on this thread, for allocators that see a request and nothing
// else. Costs some 50 ns an operator while somebody wants to know, and nothing otherwise.
//
//   const OperatorNames names;       // from here on
//   ... in an allocator: current_operator()  // "aten::mm"
//
// An operator that only makes room for another (aten::empty inside of aten::mm) is not told of.
// Threads: an OperatorNames holds for all of them.
#pragma once

#include <string>

namespace headroom::libtorch {

// While one lives, current_operator() answers.
class OperatorNames {
 public:
  OperatorNames();
  ~OperatorNames();
  OperatorNames(const OperatorNames&) = delete;
  OperatorNames& operator=(const OperatorNames&) = delete;
};

// Of any device's, unlike sim::current_operator(). "aten::where.self"; empty: none runs on this
// thread, or nobody wanted to know when it began.
[[nodiscard]] std::string current_operator();

}  // namespace headroom::libtorch
