// The layers that get an adapter, checked.
#pragma once

#include <vector>

#include "headroom/nn/detail/targets.h"
#include "headroom/nn/lora.h"

namespace headroom::nn::detail {

// The targets of these names, in the given order. Throws UsageError for one that the model lacks,
// that cannot have an adapter, or that is named twice, and for invalid numbers.
[[nodiscard]] std::vector<Target> checked_targets(torch::nn::Module& model,
                                                  const std::vector<LoraLayer>& layers);

}  // namespace headroom::nn::detail
