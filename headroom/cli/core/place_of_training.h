// Where `headroom train` runs: a card with room for it, reserved by a lease in this process, which
// the engine inherits; or for a dry run a card of the same kind without one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/config/training.h"
#include "headroom/gpu/devices.h"

namespace headroom::cli {

// The run's card, and the UUIDs of those that the engine sees, in its order.
struct RunPlace {
  int card = 0;
  std::vector<std::string> uuids;
  std::optional<int> lease = {};  // its descriptor, if the run took one
};

// std::nullopt: the run is on the CPU. Throws BusyError if no card has room in time,
// UnavailableError if there is none.
[[nodiscard]] std::optional<RunPlace> take_place(const config::Training& training,
                                                 const gpu::Devices& devices);

// The cards of a dry run, and the memory that a run could use on one now; std::nullopt means all of
// it.
struct DryPlace {
  gpu::Devices devices;
  std::optional<Bytes> usable = {};
};

// Without a lease and without waiting: of shared cards the one with the most usable memory, as an
// empty one of its kind. A plan has to fit into the memory that a run could use on it now. Throws
// UnavailableError.
[[nodiscard]] DryPlace dry_place(const gpu::Devices& devices, const config::Resolved& config);

}  // namespace headroom::cli
