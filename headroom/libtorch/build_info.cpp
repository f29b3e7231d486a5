#include "headroom/libtorch/build_info.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

namespace headroom::libtorch {

BuildInfo build_info() {
  return {.version = TORCH_VERSION,
          .cxx_flags = at::get_cxx_flags(),
          .cuda_loaded = at::globalContext().hasCUDA(),
          .intra_op_threads = at::get_num_threads()};
}

}  // namespace headroom::libtorch
