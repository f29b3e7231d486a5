// What models of images have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

// Throws UsageError unless the batch holds images of `channels` channels, and of `side` pixels a
// side where the model takes one size alone.
void check_images(const Batch& batch, std::int64_t channels, std::optional<std::int64_t> side = {});

// transformers cannot checkpoint every model. Throws UsageError where it is asked for.
void refuse_checkpointing(const formula::ModelConfig& config, const Settings& settings);

// A key with one number, at least 1, for each of `stages` stages.
[[nodiscard]] std::vector<std::int64_t> per_stage(const formula::ModelConfig& config,
                                                  const char* key, std::size_t stages);

// Logits, and the loss if the batch has labels.
[[nodiscard]] Output classified(Tensor logits, const Batch& batch,
                                const formula::ModelConfig& config);

}  // namespace headroom::models::detail
