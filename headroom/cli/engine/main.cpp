// `headroom-engine`: the commands that need tensors. `headroom` starts it; users need not.
#include <ATen/Parallel.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headroom/cli/core/complaint.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/engine/commands.h"
#include "headroom/cuda/load.h"

// Dry runs need no CUDA, and loading LibTorch's CUDA part costs a second; training loads it.
const bool headroom_without_cuda = true;

namespace headroom::cli {
namespace {

constexpr const char* kHelp =
    "headroom-engine version [--json]\n"
    "headroom-engine bench|estimate|fit|plan|profile|train REQUEST\n"
    "\n"
    "The part of Headroom that uses LibTorch; `headroom` starts it.\n";

ExitCode run(const std::vector<std::string>& words) {
  const auto is = [&](const char* command, std::size_t count) {
    return words.size() == count && words[0] == command;
  };
  if (is("--help", 1) || is("-h", 1)) return print(kHelp), kOk;
  if (is("version", 1) || (is("version", 2) && words[1] == "--json"))
    return run_version(words.size() == 2);
  if (is("bench", 2)) return run_bench(parse_json(words[1], "the request"));
  if (is("estimate", 2)) return run_estimate(parse_json(words[1], "the request"));
  if (is("fit", 2)) return run_fit(parse_json(words[1], "the request"));
  if (is("plan", 2)) return run_plan(parse_json(words[1], "the request"));
  if (is("profile", 2)) return run_profile(parse_json(words[1], "the request"));
  if (is("train", 2)) return run_train(parse_json(words[1], "the request"));
  print_error("headroom-engine: unknown command; " + std::string(kHelp));
  return kUsage;
}

}  // namespace
}  // namespace headroom::cli

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  // A dry run fills small tensors only: threads would wait for each other.
  if (words.empty() || words[0] != "train") at::set_num_threads(1);
  return headroom::cli::complaining([&] { return headroom::cli::run(words); });
}
