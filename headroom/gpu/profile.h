// What a chip does to memory besides the tensors: the context of a process, cuBLAS's workspaces,
// which attention kernel is chosen. Data with sources (data/profiles.json); what nobody has
// measured is empty.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::gpu {

struct AttentionKernel {
  std::string name;                 // flash, memory_efficient, cudnn, math
  std::vector<std::string> dtypes;  // "float16", ...; empty: all
  std::optional<int> max_head_dim;
  std::optional<bool> allows_mask;
};

struct DeviceProfile {
  std::string key;                        // "ada"
  std::vector<std::string> capabilities;  // "8.9"
  std::optional<Bytes> context;           // a training process's CUDA context, beside tensors
  std::optional<Bytes> cublas_workspace;  // for each handle and stream
  std::optional<Bytes> cublaslt_workspace;
  int multiprocessors = 0;                 // of the largest card with this chip; 0: not known
  int threads_of_multiprocessor = 0;       // at the same time
  std::vector<AttentionKernel> attention;  // in the order PyTorch prefers them
  std::optional<double> matmul_fraction,
      bandwidth_fraction;  // of the data sheet's, reached in practice
};

[[nodiscard]] const std::vector<DeviceProfile>& profiles();
[[nodiscard]] const DeviceProfile* find_profile(std::string_view key);
[[nodiscard]] const DeviceProfile* profile_of_capability(int major, int minor);

}  // namespace headroom::gpu
