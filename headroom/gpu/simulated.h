// Simulated cards, as an inventory: what `sim:8x31.36GiB` means, and who uses a shared box.
//
// A box without a name is empty and belongs to the process that simulates it. A box with a name
// (`sim:8x24GiB@lab`) is shared by the processes of the machine through a file in the state folder
// (docs/formats/simulated-box.md). Here is the reading half: a dead process's bytes do not count.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/source.h"

namespace headroom::gpu {

// The simulated backend has a fixed table of devices; more would not be seen by autograd's threads.
inline constexpr int kMostSimulatedCards = 16;

struct SimulatedCard {
  std::string name = {};
  Bytes total = {};
  Bytes reserved = {};       // by the driver, of cards from the catalogue
  std::string profile = {};  // of its chip; empty for a plain size
};

// What one process can allocate where nobody else does: the driver's share and the context that the
// process takes itself are off.
[[nodiscard]] Bytes room_of(const SimulatedCard& card);

struct SimulatedBox {
  std::vector<SimulatedCard> cards = {};
  std::string name = {};  // shared under this name; empty: private
};

// "8x31.36GiB", "2xRTX4090", "1x24GiB,1x80GiB", each with "@NAME" at its end, and with or without
// "sim:" in front. Throws UsageError.
[[nodiscard]] SimulatedBox parse_simulated(std::string_view spec);

// One process's share of a card of a shared box.
struct BoxShare {
  ProcessIdentity process;
  int card = 0;
  Bytes used;
};
[[nodiscard]] std::string box_path(const SimulatedBox& box);
// The shares as written, the dead included. Throws InputError for a file that is no box, UsageError
// if the box exists with other cards.
[[nodiscard]] std::vector<BoxShare> read_shares(const SimulatedBox& box);

[[nodiscard]] std::unique_ptr<CardSource> make_simulated_source(
    SimulatedBox box, ProcessTable processes = ProcessTable());

}  // namespace headroom::gpu
