// The memory that existed when a recorded history began. PyTorch keeps only the latest events;
// older blocks and segments appear only when they are freed, or in the state at the end. This code
// derives the initial state from both and returns events that create it.
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
  // Segments, then blocks, each by address; then frees of the blocks that were awaiting completion.
  std::vector<StartEvent> events;
  // A recording may leave out either kind on purpose (skip_actions); every free has one of the two.
  bool has_free_requested = false;
  bool has_free_completed = false;
  bool has_times = false;
};

[[nodiscard]] Start start_of(const SnapshotTree& snapshot, std::size_t device);

}  // namespace headroom::trace::pickle
