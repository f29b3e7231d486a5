// `headroom-engine version`: the loaded LibTorch, for `headroom version` and `doctor`.
#include <nlohmann/json.hpp>
#include <string>

#include "headroom/base/file.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/libtorch/build_info.h"

namespace headroom::cli {

ExitCode run_version(bool json) {
  const auto info = libtorch::build_info();
  const auto settings = environment("PYTORCH_CUDA_ALLOC_CONF");
  if (json) {
    print(to_line({{"schema", 1},
                   {"libtorch", info.version},
                   {"cuda", info.cuda_loaded},
                   {"threads", info.intra_op_threads},
                   {"allocator_settings", settings ? Json(*settings) : Json()}}) +
          "\n");
  } else {
    print("headroom-engine with LibTorch " + info.version + ", CUDA " +
          (info.cuda_loaded ? "usable" : "not loaded") + ", " +
          std::to_string(info.intra_op_threads) + " threads\n");
  }
  return kOk;
}

}  // namespace headroom::cli
