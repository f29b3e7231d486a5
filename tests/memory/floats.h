#pragma once

#include <torch/torch.h>

namespace headroom::memory {

// A tensor of so many MiB.
inline torch::Tensor floats(std::int64_t mib, torch::Device device) {
  return torch::empty({mib << 18}, device);
}

}  // namespace headroom::memory
