// What `--gpus` (and HEADROOM_GPUS) means, the same in every command: which source of cards, and
// which of its cards.
//
//   auto | all | 0,2 | GPU-uuid,... | cpu | sim:8x24GiB | "RTX 4090"
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/simulated.h"
#include "headroom/gpu/source.h"

namespace headroom::gpu {

struct Devices {
  enum class Kind {
    automatic,  // whatever the command finds best
    all,
    listed,  // the cards of `listed`
    cpu,
    simulated,  // `box`; cards of the catalogue ("RTX 4090,H100") are a box of such empty ones
  };
  Kind kind = Kind::automatic;
  std::vector<std::string> listed;  // driver's numbers ("2") or UUIDs, possibly shortened
  SimulatedBox box;
  std::string text;  // as it was given
};

// Throws UsageError, naming the forms, the nearest card, and `where` the text stood.
[[nodiscard]] Devices parse_devices(std::string_view text, std::string_view where = "--gpus");

// `option` if given, else HEADROOM_GPUS, else automatic.
[[nodiscard]] Devices devices_from(std::string_view option);

// NVML, or the simulated box.
[[nodiscard]] std::shared_ptr<CardSource> make_source(const Devices& devices);

// Keeps the cards that are meant: the listed ones, in the order of the list; all; and with `auto`
// those that CUDA_VISIBLE_DEVICES lets programs see (a queueing system gives out cards so). Slices
// and cards are listed by UUID, cards also by number. Throws UsageError for a listed card that does
// not exist.
[[nodiscard]] Machine narrowed(Machine machine, const Devices& devices,
                               const CudaEnvironment& environment);

}  // namespace headroom::gpu
