// Settings that cannot run: with Headroom yet, or with this model ever.
#pragma once

#include <string>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::model {

// The settings that cannot run yet, as on the command line: "--zero 2".
[[nodiscard]] std::vector<std::string> cannot_run(const Settings& settings);

// Throws UsageError where weights that are trained would be quantised.
void check_quantize(const Settings& settings);
// Throws UsageError for an optimizer, or a form of it, that cannot round as the settings say.
void check_rounding(const Settings& settings);

// The form of attention that a model runs in: the one asked for, or eager where this version of
// transformers has no other for its type.
[[nodiscard]] Attention attention_of(const ModelConfig& config, Transformers version,
                                     Attention asked);

}  // namespace headroom::model
