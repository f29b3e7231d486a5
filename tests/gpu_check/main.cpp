// `gpu_check`: everything about Headroom that only a card can tell, one line a check.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <regex>

#include "headroom/base/error.h"
#include "headroom/base/output_file.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/version.h"
#include "headroom/libtorch/build_info.h"
#include "tests/gpu_check/run_checks.h"

namespace headroom::gpu_check {
namespace {

using cli::ExitCode;
using State = Outcome::State;

struct Options {
  std::string gpu = "cuda:0";
  std::vector<std::string> only;
  std::string json, child;
  double minutes = 8;
  bool list = false;
};

constexpr const char* kExamples =
    "Examples:\n"
    "  gpu_check\n"
    "  gpu_check --json h100.json\n"
    "  gpu_check --only commit --only prediction\n"
    "  gpu_check --gpu sim:24GiB --only out_of_memory\n\n"
    "Exit codes: 0 all checks passed or could not run, for example on a small card; 1 one failed;\n"
    "64 wrong arguments; 69 no GPU; 73 the JSON cannot be written.\n";

// A check's whole name, or the part before its dot.
bool is_meant(const Check& check, const std::string& name) {
  return check.name == name || check.name.starts_with(name + ".");
}

std::vector<const Check*> chosen(const std::vector<std::string>& names) {
  std::vector<const Check*> checks;
  for (const Check& check : all_checks())
    if (names.empty() || std::any_of(names.begin(), names.end(),
                                     [&](const auto& name) { return is_meant(check, name); }))
      checks.push_back(&check);
  for (const std::string& name : names)
    if (std::none_of(checks.begin(), checks.end(),
                     [&](const Check* check) { return is_meant(*check, name); }))
      throw UsageError(expectation("--only", "a check", name, "--list"));
  return checks;
}

// Columns by hand: LibTorch's headers bring another fmt than the one that Headroom links.
std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

constexpr std::size_t kState = 13, kName = 45, kTime = 9;

void print_list(const std::vector<const Check*>& checks) {
  for (const Check* check : checks) cli::print(padded(check->name, kName) + check->about + "\n");
}

void print_line(const Done& done) {
  std::string words = done.outcome.words;
  std::replace(words.begin(), words.end(), '\n', ' ');
  cli::print(padded(to_string(done.outcome.state), kState) + padded(done.check->name, kName) +
             padded(duration_text(done.took), kTime) + words + "\n");
}

std::string torch_version() {
  return libtorch::build_info().version;
}

Json card_json(const std::optional<gpu::Card>& card) {
  if (!card) return nullptr;
  return {{"name", card->name}, {"total", card->memory ? Json(card->memory->total.count) : Json()}};
}

// Folders of this machine may name its user.
std::string without_folders(const std::string& words) {
  static const std::regex folders(R"((^|[\s('"])(/[^\s:/]+)+/)");
  return std::regex_replace(words, folders, "$1");
}

Json document(const Options& options, const std::vector<Done>& all) {
  Json checks = Json::array();
  for (const Done& done : all)
    checks.push_back({{"name", done.check->name},
                      {"state", to_string(done.outcome.state)},
                      {"words", without_folders(done.outcome.words)},
                      {"took_s", done.took.count()},
                      {"figures", done.outcome.figures}});
  const gpu::Machine machine = machine_now();
  return {{"schema", 1},
          {"time", utc_timestamp(std::chrono::system_clock::now())},
          {"version", cli::kVersion},
          {"torch", torch_version()},
          {"driver", or_null(machine.driver)},
          {"gpu", options.gpu},
          {"card", card_json(Place(options.gpu).of_driver())},
          {"checks", std::move(checks)}};
}

ExitCode end_of(const std::vector<Done>& all) {
  const auto in_state = [&](State state) {
    return std::count_if(all.begin(), all.end(),
                         [&](const Done& done) { return done.outcome.state == state; });
  };
  Seconds took{0};
  for (const Done& done : all) took += done.took;
  cli::print(std::to_string(in_state(State::passed)) + " passed, " +
             std::to_string(in_state(State::failed)) + " failed, " +
             std::to_string(in_state(State::not_run)) + " not run here, in " + duration_text(took) +
             "\n");
  if (in_state(State::failed) > 0) return cli::kFailed;
  const auto missed =
      std::find_if(all.begin(), all.end(), [](const Done& done) { return done.outcome.no_card; });
  if (missed == all.end()) return cli::kOk;
  cli::print_error("gpu_check: no GPU to check: " + missed->outcome.words + "\n");
  return cli::kUnavailable;
}

ExitCode run(const Options& options) {
  Place place(options.gpu);
  if (!options.child.empty()) run_as_child(*chosen({options.child}).front(), place);
  const std::vector<const Check*> checks = chosen(options.only);
  if (options.list) return print_list(checks), cli::kOk;
  if (options.minutes <= 0)
    throw UsageError(expectation("--minutes", "more than 0", std::to_string(options.minutes), "8"));
  std::optional<OutputFile> file;  // before the checks, which take minutes
  if (!options.json.empty()) file.emplace(options.json);
  const auto card = place.of_driver();
  cli::print("Headroom " + std::string(cli::kVersion) + ", LibTorch " + torch_version() + ", " +
             options.gpu + (card ? ": " + card->name : "") + "\n");
  cli::ProgressLine progress;
  const bool shows_progress = cli::standard_error().is_terminal;
  const std::vector<Done> all = run_checks(
      checks, place, Seconds(60 * options.minutes),
      [&](const Check& check) {
        if (shows_progress) progress.show(check.name + " ...");
      },
      [&](const Done& done) {
        progress.clear();
        print_line(done);
      });
  if (file) {
    file->write(document(options, all).dump(1) + "\n");
    file->commit();
  }
  return end_of(all);
}

ExitCode parse_and_run(int argc, char** argv) {
  Options options;
  CLI::App app("Checks on a GPU what the other tests of Headroom simulate", "gpu_check");
  app.footer(kExamples);
  app.add_option("--gpu", options.gpu, "cuda:N, or a simulated card that computes")
      ->capture_default_str();
  app.add_option("--only", options.only, "Run only this check, or this group of checks")
      ->allow_extra_args(false);
  app.add_option("--minutes", options.minutes, "Limit for all checks together")
      ->capture_default_str();
  app.add_option("--json", options.json, "Write all figures to this file");
  app.add_flag("--list", options.list, "List the checks and run none");
  app.add_option("--child", options.child)->group("");  // one check; prints its outcome
  const auto complain = [](const std::string& what, ExitCode code) {
    return cli::print_error("gpu_check: " + what + "\n"), code;
  };
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::CallForHelp&) {
    return cli::print(app.help()), cli::kOk;
  } catch (const CLI::ParseError& error) {
    return complain(std::string(error.what()) + " (gpu_check --help)", cli::kUsage);
  } catch (const UsageError& error) {
    return complain(error.sentence() + " (gpu_check --help)", cli::kUsage);
  } catch (const WriteError& error) {
    return complain(error.sentence(), cli::kCannotWrite);
  } catch (const Error& error) {
    return complain(error.sentence(), cli::kFailed);
  }
}

}  // namespace
}  // namespace headroom::gpu_check

int main(int argc, char** argv) {
  return headroom::gpu_check::parse_and_run(argc, argv);
}
