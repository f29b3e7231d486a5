// A net over texts whose memory matters: most of a step's bytes are activations, and it can
// checkpoint its blocks.
#pragma once

#include <cstdint>

#include "nets.h"

namespace headroom::train {

struct TextSizes {
  std::int64_t vocabulary = 2000, width = 128;
  double dropout = 0;  // inside of the checkpointed blocks
  int blocks = 3;
};

// Without `batch`: see tokens().
[[nodiscard]] Training text(c10::Device device, const StepOptions& options,
                            const TextSizes& sizes = {});
[[nodiscard]] Tensors tokens(std::int64_t rows, std::int64_t length, const TextSizes& sizes = {});

}  // namespace headroom::train
