// `headroom history`: the tries of `headroom run`, one per line.
#include <ctime>

#include <nlohmann/json.hpp>

#include "headroom/base/bytes.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/base/time.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/whole_number.h"

namespace headroom::cli {
namespace {

struct HistoryOptions {
  std::string file;
  int count = 20;
  bool json = false;
};

// The last tries, oldest first. Skips a line that is not a try (cut by a crash); a non-empty file
// without any try is the wrong file.
std::vector<Json> tries_of(const HistoryOptions& options) {
  const std::string text = options.file.empty()
                               ? read_file(state_dir() / "runs.ndjson").value_or("")
                               : read_input(options.file);
  std::vector<Json> tries;
  for (const std::string_view line : split(text, '\n')) {
    Json one = Json::parse(line, nullptr, false);
    if (one.is_object() && one.contains("try")) tries.push_back(std::move(one));
  }
  if (tries.empty() && !options.file.empty() && !trim(text).empty())
    throw InputError(expectation("history", "lines that run --history wrote in " + options.file,
                                 std::string(trim(text).substr(0, 40))));
  const auto most = static_cast<std::size_t>(options.count);
  if (options.count > 0 && tries.size() > most)
    tries.erase(tries.begin(), tries.end() - static_cast<std::ptrdiff_t>(most));
  return tries;
}

std::string text_at(const Json& one, const char* key) {
  const Json& value = one.value(key, Json());
  if (value.is_string()) return value.get<std::string>();
  return value.is_number() ? value.dump() : "-";
}

std::string command_of(const Json& one) {
  std::vector<std::string> words;
  for (const Json& word : one.value("command", Json::array()))
    if (word.is_string()) words.push_back(word.get<std::string>());
  return without_controls(join(words, " "));
}

// Local time, as in `headroom attach`, from the UTC of the file: "2026-11-21T13:03:07.250Z".
std::string started_text(const Json& one) {
  std::string text = text_at(one, "started");
  std::tm utc{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc) == nullptr) return text;
  return local_timestamp(std::chrono::system_clock::from_time_t(::timegm(&utc))).substr(0, 16);
}

std::string verdict_of(const Json& one) {
  std::string verdict = text_at(one, "verdict");
  const bool is_memory = verdict == "gpu_oom" || verdict == "host_oom";
  if (is_memory) return verdict;
  const std::string code = text_at(one, "exit_code");
  return code == "0" ? "ok" : "failed";
}

// "16 x 12": batch x accumulation, as `headroom run` prints it.
std::string batch_of(const Json& one) {
  const std::string batch = text_at(one, "batch"), accumulation = text_at(one, "accumulation");
  return accumulation == "-" ? batch : batch + " x " + accumulation;
}

std::vector<std::string> row_of(const Json& one, const Terminal& terminal) {
  const Json& peak = one.value("peak_bytes", Json());
  return {started_text(one),
          text_at(one, "try"),
          verdict_of(one),
          text_at(one, "exit_code"),
          batch_of(one),
          peak.is_number_integer() ? to_string(bytes_from(peak)) : "-",
          fitted(command_of(one), terminal.is_terminal ? 28 : 60, terminal)};
}

ExitCode run_history(const HistoryOptions& options) {
  const std::vector<Json> tries = tries_of(options);
  if (options.json) return print(to_line({{"schema", 1}, {"tries", tries}}) + "\n"), kOk;
  const Terminal terminal = standard_output();
  std::vector<std::vector<std::string>> rows;
  for (const Json& one : tries) rows.push_back(row_of(one, terminal));
  print(rows.empty() ? "There are no tries yet.\n"
                     : table("started|>try|end|>exit|>batch|>peak|command", rows, terminal));
  return kOk;
}

}  // namespace

void add_history(Registry& registry) {
  auto [command, options] = registry.add(
      &run_history, "history", "List the tries of headroom run, and how they ended",
      "  headroom history\n"
      "  headroom history --count 0 --json | jq '.tries[] | select(.verdict == \"gpu_oom\")'\n"
      "  headroom history --file my-runs.ndjson");
  command->add_option("--count", options->count, "Number of tries to list, the newest (0: all)")
      ->capture_default_str()
      ->check(whole_number(0, 1'000'000'000));
  command->add_option("--file", options->file,
                      "File that run --history wrote (default: the one in the state folder)");
  command->add_flag("--json", options->json, "Print one JSON document");
}

}  // namespace headroom::cli
