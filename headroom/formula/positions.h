// How long a row of tokens may be, and how long it is where nothing is said; how large an image.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"

namespace headroom::formula {

// The most tokens that the model was made for; nothing: positions are not counted, or there are no
// tokens.
[[nodiscard]] std::optional<std::int64_t> longest_sequence(const ModelConfig& config);

// `settings.seq`, else 512, or the most if that is less.
[[nodiscard]] std::int64_t sequence_length(const ModelConfig& config, const Settings& settings);

// Pixels a side of an image: `settings.image`, else the config's, else 224.
[[nodiscard]] std::int64_t image_side(const ModelConfig& config, const Settings& settings);

// What a run of `settings.task` takes in: each size that it has is there, as said or as above, and
// a target as long as the row; those that it has not are gone.
void settle_sizes(const ModelConfig& config, Settings& settings);

// Throws UsageError for a row that cannot run: longer than the positions that a model has learned.
// Where positions are computed a longer one can, as in transformers.
void check_sequence(const ModelConfig& config, std::int64_t length);

// Throws for images that a convnext makes smaller than a pixel, each of its stages halving them:
// UsageError if `settings.image` says so, else InputError.
void check_image(const ModelConfig& config, const Settings& settings);

}  // namespace headroom::formula
