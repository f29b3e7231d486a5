// The value of `--gpus` (and HEADROOM_GPUS), the same in every command: a source of cards, and a
// choice of its cards.
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
    automatic,  // the command chooses
    all,
    listed,  // the cards of `listed`
    cpu,
    simulated,  // `box`; catalogue names ("RTX 4090,H100") become a box of such empty cards
  };
  Kind kind = Kind::automatic;
  // Driver's numbers ("2") or UUIDs, possibly shortened; of a box its numbers, or none for all.
  std::vector<std::string> listed;
  SimulatedBox box;
  std::string text;  // as given
};

// Throws UsageError that lists the accepted forms and the nearest card; `where` names the option.
[[nodiscard]] Devices parse_devices(std::string_view text, std::string_view where = "--gpus");

// `option` if given, else HEADROOM_GPUS, else automatic.
[[nodiscard]] Devices devices_from(std::string_view option);

// NVML, or the simulated box.
[[nodiscard]] std::shared_ptr<CardSource> make_source(const Devices& devices);

// Keeps the chosen cards: the listed ones, in the order of the list; or all; or, with `auto`, those
// that CUDA_VISIBLE_DEVICES makes visible (queueing systems assign cards that way). A UUID lists a
// card or a slice, a number lists a card. Throws UsageError for a listed card that does not exist.
[[nodiscard]] Machine narrowed(Machine machine, const Devices& devices,
                               const CudaEnvironment& environment);

}  // namespace headroom::gpu
