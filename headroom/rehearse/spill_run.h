// `headroom run --spill`: the command's Python processes run with headroom.spill() on, from the
// moment that they import torch. The way in is that of a rehearsal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/gpu/simulated.h"

namespace headroom::rehearse {

struct SpillOrders {
  std::optional<Bytes> host_memory;       // of all processes; std::nullopt: half of what is free
  std::vector<gpu::SimulatedCard> cards;  // that stand in for CUDA's, and compute; empty: real ones
  std::filesystem::path folder;           // where each process writes what moved
};

// "NAME=value" for the command. Throws UnavailableError if no Python has the package.
[[nodiscard]] std::vector<std::string> spill_environment(const SpillOrders& orders);

// What moved in one process that used a card.
struct SpilledProcess {
  std::optional<int> rank;
  std::int64_t refused = 0, rescued = 0;  // requests
  Bytes moved;                            // to the host, in all
  Bytes peak_waiting;                     // there at once
  Bytes needed;                           // of the fullest card, with what waited
  Bytes peak_reserved;                    // of the fullest card
  double seconds = 0;                     // that requests waited for moves
  std::string sentence;
};
// By rank.
[[nodiscard]] std::vector<SpilledProcess> spilled_processes(const std::filesystem::path& folder);

}  // namespace headroom::rehearse
