#include "headroom/cli/engine/train/run_settings.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/file.h"
#include "headroom/cli/core/training_folder.h"
#include "headroom/config/training_keys.h"

namespace headroom::cli {

RunSettings::RunSettings(const Json& request, const config::Resolved& config)
    : request_(request), config_(config) {}

void RunSettings::tell(const train::FoundCheckpoint* found, TrainingView& view) {
  const std::string out = config_.text("out");
  const Json& base = request_.at("base");
  if (found == nullptr) {
    if (request_.at("resume").get<bool>())
      view.say("no checkpoint in " + out + " yet; starting from the beginning" +
               (base.is_null() ? "" : " with the settings of its config.yaml"));
    return;
  }
  if (base.is_null())
    return view.say(out + " has no config.yaml: settings that are not given are the defaults");
  const config::Resolved before =
      config::resolve(config::training_keys(), {.base = base.get<std::string>()});
  changes_ = changes(before, config_, found->step + 1);
  for (const std::string& change : changes_) view.say(change);
}

void RunSettings::save(RunFolder& folder) {
  if (std::exchange(is_saved_, true)) return;
  folder.claim("config.yaml");
  const std::filesystem::path file = std::filesystem::path(config_.text("out")) / "config.yaml";
  write_file_atomically(file, yaml_of_run(config_, read_file(file).value_or(""), changes_));
}

}  // namespace headroom::cli
