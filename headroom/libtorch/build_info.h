// The LibTorch that this process has loaded.
#pragma once

#include <string>

namespace headroom::libtorch {

struct BuildInfo {
  std::string version;  // "2.11.0"
  std::string cxx_flags;
  bool cuda_loaded = false;  // libtorch_cuda.so is in this process and sees a GPU
  int intra_op_threads = 1;
};

[[nodiscard]] BuildInfo build_info();

}  // namespace headroom::libtorch
