// What fits where: memory by closed form against the room of a card.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/formula/memory.h"

namespace headroom::formula {

// What a plan may use of `free` bytes: all but max(512 MiB, 5 %), because real memory is not used
// without gaps.
[[nodiscard]] Bytes plannable(Bytes free);

// The largest of the standard sizes that fits into `room` bytes; null if none does.
[[nodiscard]] const ModelShape* largest_trainable(Bytes room, Technique technique, Batch batch);
[[nodiscard]] const ModelShape* largest_servable(Bytes room, Precision precision, Batch batch);

// One line for the catalogue, computed: "trains 774M in full (mixed precision), 7B with LoRA;
// runs 13B in 16 bit, 70B in 4 bit". `room` as from plannable().
[[nodiscard]] std::string good_for(Bytes room, Batch batch);

}  // namespace headroom::formula
