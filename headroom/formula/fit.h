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

// The catalogue's "good for", computed: the largest standard size for each use, "-" if none fits.
// `room` as from plannable().
struct Uses {
  std::string full;  // AdamW, mixed precision, checkpointing
  std::string lora, lora_4bit;
  std::string run_16bit, run_4bit;
};
[[nodiscard]] Uses good_for(Bytes room, Batch batch);

// "trains 774M, LoRA 7B, 4-bit LoRA 13B; runs 7B in 16 bit, 13B in 4 bit"
[[nodiscard]] std::string to_string(const Uses& uses);

}  // namespace headroom::formula
