// How a step runs so that it fits: the same result for the batch, with other memory.
//
// A smaller micro-batch, checkpointing and offload trade time for memory; the fused loss trades
// nothing. None of them changes what a step means: the gradients are those of the whole batch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headroom/base/json.h"

namespace headroom::train {

struct Plan {
  std::int64_t micro_batch = 0;  // most rows in one forward pass; 0: the whole batch
  bool checkpointing = false;    // of every layer
  bool fused_loss = false;
  bool offload = false;        // saved activations wait in host memory
  std::string allocator = {};  // settings, as in PYTORCH_ALLOC_CONF; empty: as the process began
  std::string device = {};     // "cuda:1"; empty: where the model is

  bool operator==(const Plan&) const = default;
};

// The most rows that a forward pass gets from a batch of so many rows. A batch runs in as few parts
// as the plan allows, of nearly equal sizes: they need less memory than full ones and a small rest,
// and no layer that needs several rows gets a single one.
[[nodiscard]] std::int64_t largest_part(const Plan& plan, std::int64_t rows);
[[nodiscard]] std::int64_t count_of_parts(const Plan& plan, std::int64_t rows);

// "micro-batch 8, checkpointing, activations on the host"
[[nodiscard]] std::string to_string(const Plan& plan);

[[nodiscard]] Json to_json(const Plan& plan);
// Throws InputError naming `source` and the key.
[[nodiscard]] Plan plan_from(const Json& document, std::string_view source);

}  // namespace headroom::train
