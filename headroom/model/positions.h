// Limits and defaults of sequence lengths and image sizes.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::model {

// The most tokens that the model was made for. std::nullopt if the config gives none, as for
// images.
[[nodiscard]] std::optional<std::int64_t> longest_sequence(const ModelConfig& config);

// `settings.seq`; else 512, or the model's maximum if that is less.
[[nodiscard]] std::int64_t sequence_length(const ModelConfig& config, const Settings& settings);

// Pixels per side of an image: `settings.image`, else the config's, else 224.
[[nodiscard]] std::int64_t image_side(const ModelConfig& config, const Settings& settings);

// Fills in the input sizes of `settings.task`, as given or by the defaults above; the target length
// defaults to the sequence length. Clears the sizes that the task does not have.
void settle_sizes(const ModelConfig& config, Settings& settings);

// Throws UsageError for a sequence that cannot run: one longer than the positions that a model has
// learned. A model that computes positions accepts longer sequences, as in transformers.
void check_sequence(const ModelConfig& config, std::int64_t length);

// Throws if a convnext, whose stages each halve an image, would shrink it below one pixel:
// UsageError if `settings.image` is set, else InputError.
void check_image(const ModelConfig& config, const Settings& settings);

}  // namespace headroom::model
