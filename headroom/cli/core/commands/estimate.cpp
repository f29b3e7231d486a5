// `headroom estimate`: will it fit? Reads the command line; the dry run is headroom-engine's.
#include <nlohmann/json.hpp>

#include "headroom/cli/core/engine.h"
#include "headroom/cli/core/model_request.h"
#include "headroom/cli/core/registry.h"

namespace headroom::cli {
namespace {

struct Options {
  ModelRequest request;
  std::optional<std::string> trace;
};

ExitCode run(const Options& options) {
  Json request = options.request.document();
  request["trace"] = options.trace ? Json(*options.trace) : Json();
  become_engine({"estimate", to_line(request)});
}

}  // namespace

void add_estimate(Registry& registry) {
  auto options = std::make_shared<Options>();
  CLI::App* command = registry.add(
      "estimate", "Will it fit? The memory of a training step, by dry run",
      "  headroom estimate llama-3.1-8b --batch 2 --seq 2048 --dtype bfloat16 --gpus \"RTX 4090\"\n"
      "  headroom estimate runs/my-model/config.json --batch 16 --checkpointing full\n"
      "  headroom estimate 7B --seq 4096 --gpus sim:1x80GiB --json");
  options->request.add_to(command);
  command->add_option("--trace", options->trace, "Write all that happened, for `headroom trace`");
  registry.run(command, options, &run);
}

}  // namespace headroom::cli
