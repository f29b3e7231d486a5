// The configuration of `headroom train` and `headroom config explain`, from the command line and
// files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/config/training.h"
#include "headroom/gpu/devices.h"

namespace headroom::cli {

// As config::resolve(). A first guess that means something, such as `gpt2` or `model=gpt2`, is
// refused with the words that work.
[[nodiscard]] config::Resolved training_config(const config::Sources& sources);

// Takes the model, and its batch, that model_variants has for the smallest of these cards. The
// command line's model.config and batch_size stay. Returns a sentence; std::nullopt if there are no
// variants.
std::optional<std::string> choose_variant(config::Resolved& config, const gpu::Devices& devices);

// Throws UsageError for a key on the command line that this job does not use. Returns a sentence
// for each such key of a file: a file may be for several jobs.
[[nodiscard]] std::vector<std::string> check_use_of_keys(const config::Training& training);

}  // namespace headroom::cli
