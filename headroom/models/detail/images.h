// Shared parts of image models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

// Throws UsageError unless the batch holds images of `channels` channels and, for a model that
// takes only one size, of `side` pixels a side.
void check_images(const Batch& batch, std::int64_t channels, std::optional<std::int64_t> side = {});

// The output with these logits, and with the loss if the batch has labels.
[[nodiscard]] Output classified(Tensor logits, const Batch& batch,
                                const model::ModelConfig& config);

}  // namespace headroom::models::detail
