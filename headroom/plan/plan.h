// How a training step runs so that it fits: with other memory, and but for what lasts (below) with
// the same result for the batch.
//
//   Plan plan{.micro_batch = 8, .techniques = {"checkpointing", "fused_loss"}};
//   say(to_string(plan));   // "micro-batch 8, checkpointing, fused loss"
//
// A smaller micro-batch and most techniques trade time for memory: the gradients stay those of the
// whole batch. Techniques whose rung lasts (technique.h) store frozen weights in fewer bits: from
// then on the run computes with these.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/json.h"

namespace headroom::plan {

struct Plan {
  std::int64_t micro_batch = 0;           // most rows in one forward pass; 0: the whole batch
  std::set<std::string> techniques = {};  // by the names of their rungs (technique.h)
  // Settings, as in PYTORCH_ALLOC_CONF; "" means those the process began with.
  std::string allocator = {};
  std::string device = {};  // "cuda:1"; "" means where the model is

  [[nodiscard]] bool has(const std::string& technique) const {
    return techniques.contains(technique);
  }

  bool operator==(const Plan&) const = default;
};

// The plan with another set of techniques.
[[nodiscard]] Plan with(Plan plan, const std::string& technique);
[[nodiscard]] Plan without(Plan plan, const std::string& technique);
// The plan with the techniques of `now` that last (technique.h).
[[nodiscard]] Plan keeping_what_lasts(Plan plan, const Plan& now);
// Whether it has techniques that last, and `now` has not.
[[nodiscard]] bool adds_what_lasts(const Plan& plan, const Plan& now);

// The most rows that a forward pass gets from a batch of this many rows, and the fewest. A batch
// runs in as few parts as the plan allows, of nearly equal sizes: they need less memory than full
// ones and a small rest.
[[nodiscard]] std::int64_t largest_part(const Plan& plan, std::int64_t rows);
[[nodiscard]] std::int64_t smallest_part(const Plan& plan, std::int64_t rows);
[[nodiscard]] std::int64_t count_of_parts(const Plan& plan, std::int64_t rows);

// The sizes of the parts that a plan may cut a batch into.
struct PartLimits {
  std::int64_t least = 1, most = 0;  // rows of the largest part; 0: of the batch
  std::int64_t fewest = 1;           // rows of the smallest part
};
// The micro-batches that differ for a batch of this many rows, the largest first: 10, 5, 4, 3, 2,
// 1. A batch that is smaller than a limit may run at once.
[[nodiscard]] std::vector<std::int64_t> micro_batches(std::int64_t rows, const PartLimits& limits);

// "micro-batch 8, checkpointing, activations on the host"
[[nodiscard]] std::string to_string(const Plan& plan);

// {"micro_batch":8,"checkpointing":true,"fused_loss":false,...}: true or false for each rung.
[[nodiscard]] Json to_json(const Plan& plan);
// Throws InputError naming `source` and the key.
[[nodiscard]] Plan plan_from(const Json& document, std::string_view source);

}  // namespace headroom::plan
