// Simulated cards as an inventory: parses `sim:8x31.36GiB` and reads who uses a shared box.
//
// A box without a name is empty and belongs to the process that simulates it. A box with a name
// (`sim:8x24GiB@lab`) is shared by the processes of the machine through a file in the state folder
// (docs/formats/simulated-box.md). This file only reads it; the bytes of dead processes do not
// count.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/source.h"

namespace headroom::gpu {

// As many cards as a process can simulate: LibTorch has a fixed table of devices, and autograd's
// threads would not see more. So many can be in a box with a name, too.
inline constexpr int kMostSimulatedCards = 16;
// As many as a machine without a name can have: as an inventory, or to plan for.
inline constexpr int kMostCards = 64;

struct SimulatedCard {
  std::string name = {};
  Bytes total = {};
  Bytes reserved = {};       // the driver's share, for cards from the catalogue
  std::string profile = {};  // of its chip; empty for a plain size
  bool operator==(const SimulatedCard&) const = default;
};

// Memory that processes can fill together: without the driver's share.
[[nodiscard]] Bytes usable(const SimulatedCard& card);
// Memory that one process can allocate on an otherwise empty card: without the driver's share and
// without the CUDA context of the process itself.
[[nodiscard]] Bytes room_of(const SimulatedCard& card);

struct SimulatedBox {
  std::vector<SimulatedCard> cards = {};
  std::string name = {};  // shared under this name; "" means private
};

// Parses "8x31.36GiB", "2xRTX4090" or "1x24GiB,1x80GiB", each optionally with "@NAME" at its end
// and "sim:" in front. Throws UsageError.
[[nodiscard]] SimulatedBox parse_simulated(std::string_view spec);

// One process's share of a card of a shared box.
struct BoxShare {
  ProcessIdentity process;
  int card = 0;
  Bytes used;
};
[[nodiscard]] std::string box_path(const SimulatedBox& box);
// The shares as written, those of dead processes included. Throws InputError for a file that is not
// a box, UsageError if the box exists with other cards.
[[nodiscard]] std::vector<BoxShare> read_shares(const SimulatedBox& box);

[[nodiscard]] std::unique_ptr<CardSource> make_simulated_source(
    SimulatedBox box, ProcessTable processes = ProcessTable());

}  // namespace headroom::gpu
