// Settings of `headroom estimate` in the words of `headroom train`.
//
//   train_words(settings, {"--seq", "--dtype"});   // "seq=1024", "dtype=bfloat16"
#pragma once

#include <string>
#include <vector>

#include "headroom/model/run_settings.h"

namespace headroom::config {

// The options that have a key, and --batch.
[[nodiscard]] std::vector<std::string> options_with_keys();

// The keys that mean the given options, by their names; batch and accumulation are not among them.
// Throws UsageError for an option without a key.
[[nodiscard]] std::vector<std::string> train_words(const model::Settings& settings,
                                                   const std::vector<std::string>& given);

}  // namespace headroom::config
