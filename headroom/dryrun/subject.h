// The subject of a dry run, and its options.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace headroom::dryrun {

using Named = std::pair<std::string, at::Tensor>;

// The step to run, and its known tensors. Unknown ones may be left out: tensors that need a
// gradient count as parameters when operators use them, and others made before the first step count
// as inputs (for instance the state of an optimizer that has already stepped).
struct Subject {
  std::function<void()> step = {};  // one whole training step
  // Is given a function that the step may call, to put a mark (Operation::Kind::nothing) among its
  // requests.
  std::function<void(std::function<void()> mark)> marks = {};
  std::vector<Named> parameters = {};  // "h.0.attn.weight": the module is before the last dot
  std::vector<Named> buffers = {};
  // Names of all modules, where their calls are reported (module_calls.h); else empty.
  std::vector<std::string> modules = {};
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> states = {};  // the optimizer's, from earlier steps
  // Objects that the step needs but does not own: the model, the optimizer.
  std::vector<std::shared_ptr<const void>> keeps = {};
};

struct Options {
  int steps = 2;             // the second begins with the optimizer's state
  std::size_t biggest = 10;  // tensors that the report names
  bool keep_trace = true;    // Report::trace, 48 bytes an event
};

}  // namespace headroom::dryrun
