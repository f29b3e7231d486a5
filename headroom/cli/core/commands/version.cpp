// `headroom version`: this program, its engine, and the LibTorch it uses.
#include <nlohmann/json.hpp>

#include "headroom/base/json.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/version.h"

namespace headroom::cli {
namespace {

struct VersionOptions {
  bool json = false;
};

ExitCode run_version(const VersionOptions& options) {
  const auto engine = find_engine();
  const auto torch = find_torch();
  if (options.json) {
    print(to_line({{"schema", 1},
                   {"version", kVersion},
                   {"compiler", kCompiler},
                   {"build", kBuildType},
                   {"engine", engine ? Json(engine->string()) : Json()},
                   {"torch", torch ? Json(torch->version) : Json()},
                   {"torch_folder", torch ? Json(torch->folder.string()) : Json()}}) +
          "\n");
    return kOk;
  }
  print(std::string("headroom ") + kVersion + " (" + kCompiler + ", " + kBuildType + ")\n" +
        "engine   " + (engine ? engine->string() : "not built") + "\n" + "torch    " +
        (torch ? torch->version + " in " + torch->folder.string() : "not found") + "\n");
  return kOk;
}

}  // namespace

void add_version(Registry& registry) {
  auto [command, options] = registry.add(&run_version, "version",
                                         "Print the versions of Headroom, its engine and LibTorch",
                                         "  headroom version\n"
                                         "  headroom version --json");
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli
