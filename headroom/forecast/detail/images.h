// Common parts of image models.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headroom/forecast/detail/architectures.h"

namespace headroom::forecast::detail {

// Throws UsageError if checkpointing is set: transformers cannot checkpoint these models.
void refuse_checkpointing(const Network& net);

// One number per stage; `otherwise` where the config has null.
[[nodiscard]] std::vector<std::int64_t> stages(const model::ModelConfig& config,
                                               std::string_view key,
                                               const std::vector<std::int64_t>& otherwise);

// A convolution with its own parameters. `image`: the size of `x`, then that of the result.
[[nodiscard]] Value convolved(Network& net, const Value& x, Image& image, const Convolution& of,
                              bool with_bias);

[[nodiscard]] Value pixels_of(const Network& net, std::int64_t channels);

}  // namespace headroom::forecast::detail
