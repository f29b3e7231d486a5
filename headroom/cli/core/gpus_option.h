// The option --gpus, which every command that looks at the machine has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace headroom::cli {

void add_gpus_option(CLI::App* command, std::string& gpus);
// The same for commands that compare cards: may be given several times.
void add_gpus_option(CLI::App* command, std::vector<std::string>& gpus);

}  // namespace headroom::cli
