// Memory that a chip needs besides tensors: the CUDA context of a process, cuBLAS workspaces, and
// the choice of the attention kernel. Data with sources (data/profiles.json); values without a
// measurement are empty.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::gpu {

struct AttentionKernel {
  std::string name;                 // flash, memory_efficient, cudnn, math
  std::vector<std::string> dtypes;  // "float16", ...; an empty list means all
  std::optional<int> max_head_dim;
  std::optional<bool> allows_mask;
};

struct DeviceProfile {
  std::string key;                        // "ada"
  std::vector<std::string> capabilities;  // "8.9"
  std::optional<Bytes> context;           // CUDA context of a training process, beside its tensors
  std::optional<Bytes> cublas_workspace;  // per handle and stream
  std::optional<Bytes> cublaslt_workspace;
  int multiprocessors = 0;                 // on the largest card with this chip; 0: unknown
  int threads_of_multiprocessor = 0;       // resident at the same time
  std::vector<AttentionKernel> attention;  // in PyTorch's order of preference
  std::optional<double> matmul_fraction,
      bandwidth_fraction;  // share of the datasheet value reached in practice
};

[[nodiscard]] const std::vector<DeviceProfile>& profiles();
[[nodiscard]] const DeviceProfile* find_profile(std::string_view key);
[[nodiscard]] const DeviceProfile* profile_of_capability(int major, int minor);

}  // namespace headroom::gpu
