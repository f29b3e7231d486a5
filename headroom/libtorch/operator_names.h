// Names the LibTorch operator that runs on each thread in trace::here, for allocators, which see
// only a request. Costs about 50 ns per operator while one is alive, and nothing otherwise.
//
//   const OperatorNames names;       // from here on
//   ... in an allocator: trace::here.operation  // "aten::mm"
//
// Skips an operator that only allocates for another one (aten::empty inside aten::mm). An operator
// that began earlier has no name.
// Threads: an OperatorNames works for all threads.
#pragma once

namespace headroom::libtorch {

class OperatorNames {
 public:
  OperatorNames();
  ~OperatorNames();
  OperatorNames(const OperatorNames&) = delete;
  OperatorNames& operator=(const OperatorNames&) = delete;
};

}  // namespace headroom::libtorch
