// Finds the place in the user's program from a stack that PyTorch recorded: the innermost frame
// that belongs neither to Python nor to PyTorch, as "file:line", and the operator that it called.
// Autograd's thread has no frames of the program: its line is "backward pass".
// In Headroom's own snapshots also the module.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "headroom/trace/detail/place.h"
#include "headroom/trace/detail/snapshot_tree.h"

namespace headroom::trace::pickle {

class Places {
 public:
  Place of(const SnapshotTree& snapshot, Value frames, Names& names);

 private:
  struct Meaning {
    enum class Kind : std::uint8_t {
      inner,
      operation,
      engine,
      user,
      own_operation,
      own_line,
      own_module
    } kind;
    Name name = 0;   // of the operator, function, line or module
    Name where = 0;  // of a user frame: "file:line"
  };
  Meaning meaning(const SnapshotTree& snapshot, Value frame, Names& names);

  // Keyed by the frame's dict, because many stacks share a frame.
  std::unordered_map<std::uint64_t, Meaning> meanings_;
};

}  // namespace headroom::trace::pickle
