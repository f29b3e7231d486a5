// Reads from the folder of an earlier run, which goes on or is evaluated, what `headroom train`
// needs: its settings.
//
//   TrainingSettings settings = settings_for(sources, resume, eval_only);
//   settings.config.text("out");   // the run's folder
//
// They come from out/config.yaml, below the files and words of the command line. `--config
// r1/config.yaml` of a run means that run's folder, wherever the command is given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/resolved.h"

namespace headroom::cli {

struct TrainingSettings {
  config::Sources sources;
  config::Resolved config;
  bool goes_on = false;  // there are checkpoints, and --resume or --eval-only wants the newest
};
// Throws InputError for a config.yaml that cannot be read, and UsageError for a change that a run
// cannot go on with: another model.
[[nodiscard]] TrainingSettings settings_for(config::Sources given, bool resume, bool eval_only);

// "lr was 1e-5 until now, 5e-4 from step 29": a line for each setting that changes what is
// computed.
[[nodiscard]] std::vector<std::string> changes(const config::Resolved& before,
                                               const config::Resolved& now, std::int64_t step);

// The config.yaml of a run's folder: as `config`, with absolute paths. `changed` and those in
// `former`, the content of the file before, are comments at its end.
[[nodiscard]] std::string yaml_of_run(const config::Resolved& config, const std::string& former,
                                      const std::vector<std::string>& changed);

// The folder in `out` with the result: "adapter" or "model".
[[nodiscard]] std::string result_name(const config::Resolved& config);

}  // namespace headroom::cli
