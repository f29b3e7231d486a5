// `headroom-engine`: the commands that need tensors. `headroom` starts it; nobody has to type it.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/libtorch/build_info.h"

namespace {

int version(bool json) {
  const auto info = headroom::libtorch::build_info();
  const auto settings = headroom::environment("PYTORCH_CUDA_ALLOC_CONF");
  if (json) {
    std::cout << headroom::to_line({{"schema", 1},
                                    {"libtorch", info.version},
                                    {"cuda", info.cuda_loaded},
                                    {"threads", info.intra_op_threads},
                                    {"allocator_settings",
                                     settings ? headroom::Json(*settings) : headroom::Json()}})
              << std::endl;
  } else {
    std::cout << "headroom-engine with LibTorch " << info.version << ", CUDA "
              << (info.cuda_loaded ? "usable" : "not loaded") << ", " << info.intra_op_threads
              << " threads" << std::endl;
  }
  return std::cout.good() ? 0 : 73;
}

constexpr std::string_view kHelp =
    "headroom-engine version [--json]\n"
    "\n"
    "The part of Headroom that has LibTorch. It is started by `headroom`.\n";

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
    std::cout << kHelp;
    return 0;
  }
  const bool json = words.size() == 2 && words[1] == "--json";
  if (!words.empty() && words[0] == "version" && (words.size() == 1 || json)) return version(json);
  std::cerr << "headroom-engine: unknown command; " << kHelp;
  return 64;
} catch (const std::exception& error) {
  std::cerr << "headroom-engine: this is a bug in Headroom: " << error.what() << "\n";
  return 70;
}
