// What `headroom train` and headroom-engine read from a training configuration: the model, and the
// settings of its step as `headroom estimate` has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/config/resolved.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"

namespace headroom::cli {

// The origin of a value that neither a person nor a default gave.
inline constexpr const char* kChosen = "chosen by headroom train";

// True if the data are images: then the model classifies them.
[[nodiscard]] bool trains_on_images(const config::Resolved& config);

// The model named by `model` and `model.config`. `outputs`, if above 0: a classifier's classes, or
// the tokens of a gpt-tiny. Throws UsageError and InputError.
[[nodiscard]] model::NamedModel model_of(const config::Resolved& config, std::int64_t outputs = 0);

[[nodiscard]] model::Settings settings_of(const config::Resolved& config,
                                          const model::ModelConfig& model);

// The weights that the configuration names; nothing: random ones. Throws InputError if they are
// missing. Of an adapter in peft's form those of the model below it.
[[nodiscard]] std::optional<std::string> weights_of(const config::Resolved& config);

// The adapter that `weights` names, if it names one.
[[nodiscard]] std::optional<std::string> adapter_of(const config::Resolved& config);
// Then the model is the adapter's, unless the configuration names one. Throws InputError if the
// adapter does not tell.
void take_model_of_adapter(config::Resolved& config);

// What other programs call the model: a folder with its config.json, or its name on the hub.
[[nodiscard]] std::string base_name_of(const config::Resolved& config);

// A dry run looks at no weight and no example: replaces those that are not given and not there, and
// returns a sentence for each.
[[nodiscard]] std::vector<std::string> stand_in_for_files(config::Resolved& config);

// In words: "vit-base, adapters of rank 8, on flowers102".
[[nodiscard]] std::string job_of(const config::Resolved& config);

}  // namespace headroom::cli
