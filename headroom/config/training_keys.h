// The keys of `headroom train`.
#pragma once

#include "headroom/config/schema.h"

namespace headroom::config {

// Each key works with and without "training." in front. Some defaults depend on other keys: the
// learning rate and the weight decay on the optimizer, the length on `steps`, the model's
// configuration on the dataset.
[[nodiscard]] const Schema& training_keys();

}  // namespace headroom::config
