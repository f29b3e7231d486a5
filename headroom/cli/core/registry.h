// Registers commands: each adds its subcommand to the app and the function to run. main() parses,
// runs the chosen one and turns its errors into an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/cli/core/exit_code.h"

namespace headroom::cli {

struct Registry {
  CLI::App& app;
  std::function<ExitCode()> chosen;             // set by parsing
  std::vector<std::string> behind_dashes = {};  // for `run`: another program's command line

  // A subcommand, of `group` if given, with examples at the end of its help.
  CLI::App* add(const std::string& name, const std::string& description,
                const std::string& examples, CLI::App* group = nullptr) const {
    CLI::App* command = (group != nullptr ? *group : app).add_subcommand(name, description);
    command->footer("Examples:\n" + examples);
    return command;
  }

  // The same with the function to run; to be filled with the options that the function takes.
  template <typename Options>
  std::pair<CLI::App*, Options*> add(ExitCode (*function)(const Options&), const std::string& name,
                                     const std::string& description, const std::string& examples,
                                     CLI::App* group = nullptr) {
    CLI::App* command = add(name, description, examples, group);
    auto options = std::make_shared<Options>();
    command->callback(
        [this, options, function] { chosen = [options, function] { return function(*options); }; });
    return {command, options.get()};
  }
};

void add_gpus(Registry& registry);
void add_pick(Registry& registry);
void add_run(Registry& registry);
void add_attach(Registry& registry);
void add_bench(Registry& registry);
void add_history(Registry& registry);
void add_log(Registry& registry);
void add_queue(Registry& registry);
void add_who(Registry& registry);
void add_lease(Registry& registry);
void add_clean(Registry& registry);
void add_doctor(Registry& registry);
void add_estimate(Registry& registry);
void add_fit(Registry& registry);
void add_plan(Registry& registry);
void add_profile(Registry& registry);
void add_cards(Registry& registry);
void add_models(Registry& registry);
void add_rehearse(Registry& registry);
void add_top(Registry& registry);
void add_trace(Registry& registry);
void add_train(Registry& registry);
void add_config(Registry& registry);
void add_oom(Registry& registry);
void add_version(Registry& registry);
void add_completion(Registry& registry);

// `headroom` without a command.
[[nodiscard]] ExitCode run_overview(const std::string& gpus);
// `headroom --line`.
[[nodiscard]] ExitCode run_line(const std::string& gpus);

}  // namespace headroom::cli
