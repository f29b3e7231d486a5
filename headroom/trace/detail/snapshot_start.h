// What was there when a recorded history began. PyTorch keeps the last so many events; blocks and
// segments that are older appear only when they go, or in the state at the end. From both together
// follows the state at the beginning, as events that make it.
#pragma once

#include <vector>

#include "headroom/trace/detail/snapshot_tree.h"

namespace headroom::trace::pickle {

struct StartEvent {
  Kind kind = Kind::alloc;
  std::uint64_t address = 0;
  Bytes bytes;
  std::int64_t stream = 0;
  Value frames;
};

struct Start {
  // Segments, then blocks, each by address; then the frees of blocks that were waiting for theirs.
  std::vector<StartEvent> events;
  // What this recording left out on purpose (skip_actions): every free has one of the two.
  bool has_free_requested = false;
  bool has_free_completed = false;
  bool has_times = false;
};

[[nodiscard]] Start start_of(const SnapshotTree& snapshot, std::size_t device);

}  // namespace headroom::trace::pickle
