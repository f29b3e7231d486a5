// `headroom config explain`: the final value of each key of `headroom train`, and where it is from.
#include <nlohmann/json.hpp>

#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/training_config.h"
#include "headroom/config/explain.h"
#include "headroom/config/resolved.h"
#include "headroom/machine/look.h"

namespace headroom::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> words;
  std::string preset = "default", gpus;
  std::optional<std::string> file;
  bool json = false, yaml = false;
};

ExitCode run_explain(const ExplainOptions& options) {
  config::Sources sources{.preset = options.preset, .file = {}, .overrides = options.words};
  if (options.file) sources.file = *options.file;
  config::Resolved config = training_config(sources);
  if (const auto variant = choose_variant(config, gpu::devices_from(options.gpus)))
    print_error("headroom config: " + *variant + "\n");
  choose_dataset(config);
  print(options.json   ? to_line(config::explain_json(config)) + "\n"
        : options.yaml ? config.to_yaml()
                       : config::explain(config));
  return kOk;
}

}  // namespace

void add_config(Registry& registry) {
  CLI::App* group = registry.add("config", "The configuration of `headroom train`",
                                 "  headroom config explain --config-name robust batch_size=64");
  group->require_subcommand(1);
  auto [command, options] =
      registry.add(&run_explain, "explain", "Show each key's final value and where it comes from",
                   "  headroom config explain --config-name robust batch_size=64\n"
                   "  headroom config explain --config my.yaml --yaml > full.yaml",
                   group);
  command->add_option("settings", options->words, "key=value, as for headroom train")
      ->option_text("key=value ...");
  command->add_option("--config", options->file, "A YAML file with keys");
  command->add_option("--config-name", options->preset, "A preset: default or robust")
      ->capture_default_str();
  add_gpus_option(command, options->gpus);
  command->add_flag("--yaml", options->yaml, "Print YAML for --config");
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli
