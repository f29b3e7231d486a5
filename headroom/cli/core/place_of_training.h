// Where `headroom train` runs: cards with room for it, reserved by a lease in this process, which
// the engine inherits; or for a dry run cards of the same kind without one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/config/training.h"
#include "headroom/gpu/devices.h"

namespace headroom::cli {

// The run's cards, a number each as the engine counts them, and the UUIDs of all that it sees.
struct RunPlace {
  std::vector<int> cards;
  std::vector<std::string> uuids;
  std::optional<int> lease = {};  // its descriptor, if the run took one
};

// std::nullopt: the run is on the CPU. Throws BusyError if too few cards have room in time,
// UnavailableError if there is none, UsageError if a simulated box has too few.
[[nodiscard]] std::optional<RunPlace> take_place(const config::Training& training,
                                                 const gpu::Devices& devices);

// Ends the lease of the last place, for a process that takes another one. Its environment stays.
void give_place_back();

// The cards of a dry run, and the memory that a run could use on each now; none means all of it.
struct DryPlace {
  gpu::Devices devices;
  std::vector<Bytes> usable = {};
};

// Without a lease and without waiting: of shared cards those with the most usable memory, as empty
// ones of their kind. A plan has to fit into the memory that a run could use on them now. Throws
// UnavailableError.
[[nodiscard]] DryPlace dry_place(const gpu::Devices& devices, const config::Training& training);

}  // namespace headroom::cli
