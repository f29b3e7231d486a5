#include "headroom/cli/core/training_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/run_folder.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/training_config.h"
#include "headroom/config/training_keys.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.yaml";
constexpr const char* kFolderOrigin = "the run's folder";

// ---- Paths ----

bool is_path(const std::string& key, const std::string& value) {
  if (key == "model.config") return fs::exists(value);
  if (key == "weights") return value != "random";
  return key == "data_dir" || key == "plan_schedule" || key == "out";
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  return (error ? fs::path(path) : whole).string();
}

// A value as every folder understands it.
std::optional<std::string> plain(const config::Entry& entry) {
  if (!entry.value || !is_path(entry.key, *entry.value)) return entry.value;
  return absolute(*entry.value);
}

// ---- The folder ----

bool is_on_command_line(const config::Resolved& config, std::string_view key) {
  return config.origin(key) == "command line";
}

// `--config r1/config.yaml` of a run means its folder, which may have moved since.
void find_folder(const config::Sources& given, config::Resolved& config) {
  if (!given.file || is_on_command_line(config, "out")) return;
  const fs::path file = fs::absolute(*given.file);
  if (file.filename() == kConfig && is_of_a_run(file.parent_path(), kConfig))
    config.set("out", file.parent_path().string(), kFolderOrigin);
}

bool has_checkpoints(const fs::path& out) {
  return !checkpoints_in(out).empty() || !checkpoints_in(out / "best").empty();
}

// ---- Changes ----

// Keys of the place, of the record and of the memory plan: they change no result, or only its
// rounding.
bool changes_results(const config::Key& key) {
  static const std::set<std::string> others{"fp16", "bf16", "quantize"},
      none{"weights",         "num_workers",    "attention",
           "eval_batch_size", "min_batch_size", "auto_batch_size"};
  if (none.count(key.name) > 0) return false;
  const std::string& group = key.group;
  return others.count(key.name) > 0 || group == "Model" || group == "Data" || group == "Batch" ||
         group == "Length" || group == "Optimizer";
}

struct Change {
  std::string key, before, now;
};

std::vector<Change> changed(const config::Resolved& before, const config::Resolved& now) {
  std::vector<Change> all;
  const Json were = before.to_json(), are = now.to_json();
  const auto then = before.entries(), today = now.entries();
  for (std::size_t i = 0; i < then.size(); ++i) {
    const std::string& key = then[i].key;
    if (!changes_results(config::training_keys().key(key)) || were.at(key) == are.at(key)) continue;
    const auto old = plain(then[i]), fresh = plain(today[i]);
    if (old != fresh) all.push_back({key, old.value_or("unset"), fresh.value_or("unset")});
  }
  return all;
}

void refuse_another_model(const config::Resolved& before, const config::Resolved& now) {
  static const std::set<std::string> fixed{"model", "model.config", "model.lora_r",
                                           "model.lora_targets", "num_classes"};
  // Weights that were stored in fewer bits stay in them.
  const auto restores_bits = [](const Change& one) {
    return one.key == "quantize" && one.before != "none" &&
           (one.now == "none" || (one.before == "4bit" && one.now == "8bit"));
  };
  for (const Change& one : changed(before, now))
    if (fixed.count(one.key) > 0 || restores_bits(one))
      throw UsageError(expectation(
          one.key, one.before + ", with which the run in " + now.text("out") + " goes on", one.now,
          "another folder, out=..., for a new run"));
}

// `--resume out=r1` of a mistyped r1 would begin a run with every setting at its default.
void refuse_no_run(const config::Resolved& config) {
  for (const config::Entry& entry : config.entries())
    if (entry.key != "out" && config.is_given(entry.key)) return;
  throw InputError("out",
                   "expected the folder of an earlier run, since no other setting is given, "
                   "received " +
                       config.text("out") + ", which has none");
}

}  // namespace

TrainingSettings settings_for(config::Sources given, bool resume, bool eval_only) {
  TrainingSettings all{given, training_config(given), false};
  find_folder(given, all.config);
  const std::string out = all.config.text("out");
  const bool measures = eval_only && all.config.is_given("out");
  if (!resume && !measures) return all;
  if (!is_run_folder(out)) {
    refuse_no_run(all.config);
    return all;
  }
  // A measurement of given weights is one of the run's data alone.
  all.goes_on = has_checkpoints(out) && (resume || !is_on_command_line(all.config, "weights"));
  if (!is_of_a_run(out, kConfig)) return all;
  all.sources.base = fs::path(out) / kConfig;
  all.config = training_config(all.sources);
  all.config.set("out", out, kFolderOrigin);
  if (all.goes_on)
    refuse_another_model(config::resolve(config::training_keys(), {.base = all.sources.base}),
                         all.config);
  return all;
}

std::vector<std::string> changes(const config::Resolved& before, const config::Resolved& now,
                                 std::int64_t step) {
  std::vector<std::string> lines;
  for (const Change& one : changed(before, now))
    lines.push_back(one.key + " was " + one.before + " until now, " + one.now + " from step " +
                    std::to_string(step));
  return lines;
}

std::string yaml_of_run(const config::Resolved& config, const std::string& former,
                        const std::vector<std::string>& changed) {
  constexpr std::string_view kChange = "# change: ";
  config::Resolved run = config;
  for (const config::Entry& entry : config.entries())
    if (const auto value = plain(entry); value && value != entry.value)
      run.set(entry.key, *value, entry.origin);
  std::string yaml = run.to_yaml();
  for (const std::string_view line : split(former, '\n'))
    if (line.starts_with(kChange)) yaml += std::string(line) + "\n";
  for (const std::string& line : changed) yaml += std::string(kChange) + line + "\n";
  return yaml;
}

std::string result_name(const config::Resolved& config) {
  return config.text("model") == "lora" ? "adapter" : "model";
}

}  // namespace headroom::cli
