// The tasks that published models can be built for.
#pragma once

#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/settings.h"

namespace headroom::model {

// The tasks of a model. The first is the one that the config's `architectures` name, else the usual
// one of its type.
[[nodiscard]] std::vector<Task> tasks_of(const ModelConfig& config);

}  // namespace headroom::model
