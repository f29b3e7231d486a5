// The tasks that published models can be built for, and the entries of a configuration about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::model {

// The tasks of a model. The first is the one that the config's `architectures` name, else the usual
// one of its type.
[[nodiscard]] std::vector<Task> tasks_of(const ModelConfig& config);

// `asked`, else the first. Throws UsageError if models of this type do not have the task, and
// InputError if this config does not allow it.
[[nodiscard]] Task task_for(const ModelConfig& config, std::optional<Task> asked);

// The config's `architectures` entry for the task, else transformers' class:
// "ViTForImageClassification".
[[nodiscard]] std::string architecture_of(const ModelConfig& config, Task task);

// True if the task's loss is a mean over tokens, of which a row has several.
[[nodiscard]] bool is_over_tokens(Task task);

// A decoder classifies a row by its last token that is not this padding. Throws UsageError for
// several rows if the config has no `pad_token_id`.
[[nodiscard]] std::optional<std::int64_t> last_token_padding(const ModelConfig& config,
                                                             std::int64_t rows);

// The config's `problem_type`; "" if the labels decide. Throws InputError for an unknown one.
[[nodiscard]] std::string problem_type(const ModelConfig& config);

}  // namespace headroom::model
