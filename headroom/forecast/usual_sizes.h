// The usual sizes of language models, each with the shape of a published model: the memory of their
// weights and of training them by recipe, and the largest that fits a card. Uses the closed form.
//
//   for (const UsualSize& size : usual_sizes()) say(size.name, size.model, size.parameters);
//   const GoodFor table({.batch = 1, .seq = 512});
//   to_string(table.of(plannable(24_GiB)));   // "trains 1.3B, LoRA 7B, ..."
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::forecast {

struct UsualSize {
  std::string name;   // "7B"
  std::string model;  // the catalogue model with this shape: "llama-2-7b"
  model::ModelConfig config;
  long long parameters = 0;
};
// 125M, 350M, 774M, 1.3B, 7B, 13B, 70B. Read once; thread-safe.
[[nodiscard]] const std::vector<UsualSize>& usual_sizes();

enum class WeightType { fp32, fp16, int8, int4 };
// Bytes of the weights alone; quantised ones without their scales (about 3 % more in blocks of 64).
[[nodiscard]] Bytes weight_bytes(long long parameters, WeightType type);

// Ways to train, the cheapest last.
struct Recipe {
  std::string_view name;  // "mixed + checkpointing"
  std::string_view key;   // "mixed_precision_checkpointing": for JSON
  model::Settings settings;
};
[[nodiscard]] const std::vector<Recipe>& recipes();

// The batch of a table. The caller states it and the table prints it; it is never assumed silently.
// A model with fewer positions than `seq` runs with as many tokens as it has positions.
struct TableBatch {
  std::int64_t batch = 1, seq = 512;
};
[[nodiscard]] Forecast forecast_of(const UsualSize& size, const Recipe& recipe,
                                   const TableBatch& batch);

// The largest usual size for each use; "-": even the smallest does not fit.
struct Uses {
  std::string full;  // AdamW, mixed precision, checkpointing
  std::string lora, lora_4bit;
  std::string run_16bit, run_4bit;  // with the KV cache of the whole sequence
};
// "trains 774M, LoRA 7B, 4-bit LoRA 13B; runs 7B in 16 bit, 13B in 4 bit"
[[nodiscard]] std::string to_string(const Uses& uses);

// The memory of each size for each use, computed once for all cards.
class GoodFor {
 public:
  explicit GoodFor(const TableBatch& batch);
  [[nodiscard]] Uses of(Bytes room) const;  // `room`: as from plannable(), policies.h

 private:
  using Needs = std::vector<Bytes>;  // in the order of usual_sizes()
  Needs full_, lora_, lora_4bit_, run_16bit_, run_4bit_;
};

}  // namespace headroom::forecast
