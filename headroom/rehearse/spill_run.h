// `headroom run --spill`: the command's Python processes run with headroom.spill() on, from the
// moment that they import torch. The way in is that of a rehearsal.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/gpu/simulated.h"

namespace headroom::rehearse {

struct SpillOrders {
  std::optional<Bytes> host_memory;          // of all processes; std::nullopt: half of what is free
  std::vector<gpu::SimulatedCard> cards;     // that stand in for CUDA's, and compute; empty: real ones
  std::filesystem::path folder;              // where each process writes what moved
};

// "NAME=value" for the command. Throws UnavailableError if no Python has the package.
[[nodiscard]] std::vector<std::string> spill_environment(const SpillOrders& orders);

// A sentence for each process that used a card, by rank.
[[nodiscard]] std::vector<std::string> spill_sentences(const std::filesystem::path& folder);

}  // namespace headroom::rehearse
