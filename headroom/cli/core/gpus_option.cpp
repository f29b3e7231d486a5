#include "headroom/cli/core/gpus_option.h"

namespace headroom::cli {
namespace {

constexpr const char* kGpusHelp =
    "GPUs to use: auto, all, numbers (0,2), UUIDs, sim:8x24GiB, or a card's name "
    "(default: HEADROOM_GPUS, else auto)";

}  // namespace

void add_gpus_option(CLI::App* command, std::string& gpus) {
  command->add_option("--gpus", gpus, kGpusHelp);
}

void add_gpus_option(CLI::App* command, std::vector<std::string>& gpus) {
  command->add_option("--gpus", gpus, std::string(kGpusHelp) + "; repeat it to compare cards")
      ->allow_extra_args(false);
}

}  // namespace headroom::cli
