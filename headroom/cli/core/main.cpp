// `headroom`: parses the command line, runs one command, and turns errors into a sentence on
// standard error and an exit code.
#include <fmt/format.h>

#include <sstream>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/cli/core/complaint.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/version.h"
#include "headroom/config/schema.h"
#include "headroom/config/training_keys.h"

namespace headroom::cli {
namespace {

constexpr int kHelpWidth = 100, kHelpColumn = 34;

// CLI11 prints a description on one line, however long it is, and no command behind `--`.
class HelpText : public CLI::Formatter {
 public:
  HelpText() { column_width(kHelpColumn); }

  [[nodiscard]] std::string make_option_desc(const CLI::Option* option) const override {
    const std::string lines = wrapped(option->get_description(), "", "", kHelpWidth - kHelpColumn);
    return lines.substr(0, lines.size() - 1);
  }

  [[nodiscard]] std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (app->get_prefix_command())
      usage.insert(usage.find_last_not_of('\n') + 1, " -- COMMAND ...");
    return usage;
  }
};

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const auto close = nearest(word, known);
  return close ? fmt::format("; did you mean '{}'?", *close) : "";
}

// "--batch-size 4" of a command whose settings are key=value: "; try batch_size=4". "" if no key is
// meant.
std::string as_key(const CLI::App& command, const std::string& option) {
  const CLI::Option* const settings = command.get_option_no_throw("settings");
  const std::size_t begin = option.find_first_not_of('-'), equals = option.find('=');
  if (settings == nullptr || begin >= equals) return "";
  std::string name = option.substr(begin, equals - begin);
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string key = config::training_keys().suggestion(name);
  const bool is_exact = key == name || key.ends_with("." + name),
             is_near_option = nearest("--" + name, option_names(command)).has_value();
  if (key.empty() || (!is_exact && is_near_option)) return "";
  std::string value = equals == std::string::npos ? "..." : option.substr(equals + 1);
  if (value == "...")
    for (const std::string& word : settings->results())
      if (word.find('=') == std::string::npos) value = word;
  return fmt::format("; try {}={}", key, value);
}

// Rewrites "Could not convert: --count = two", which does not say what was expected.
std::optional<std::string> unreadable_number(const CLI::ParseError& error) {
  constexpr std::string_view kBegin = "Could not convert: ";
  const std::string what = error.what();
  const std::size_t equals = what.find(" = ");
  if (!what.starts_with(kBegin) || equals == std::string::npos) return {};
  return fmt::format("{}: expected a number, received '{}'",
                     what.substr(kBegin.size(), equals - kBegin.size()), what.substr(equals + 3));
}

std::string in_our_words(const CLI::ParseError& error, const CLI::App& command) {
  if (const auto number = unreadable_number(error)) return *number;
  std::string what = error.what();
  constexpr std::string_view kTwice = ": At Most 1 required but received ";
  if (const std::size_t at = what.find(kTwice); at != std::string::npos)
    return fmt::format("{}: expected once, received {} times", what.substr(0, at),
                       what.substr(at + kTwice.size()));
  if (what == "A subcommand is required")
    return fmt::format("{}: expected one of {}, received none", command.get_name(),
                       join(command_names(command), ", "));
  return what;
}

// CLI11's own messages suggest neither the nearest command nor the nearest option.
ExitCode explain(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App* command = &app;
  std::string full_name = "headroom";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    full_name += " " + command->get_name();
  }
  const std::string help = full_name + " --help";
  for (const std::string& word : command->remaining(true)) {
    const std::string name = word.substr(0, word.find('='));
    const std::vector<std::string> known = command_names(*command);
    if (command != &app && !known.empty() && !word.starts_with("-")) {
      const std::string near = did_you_mean(word, known);
      return complain(fmt::format("unknown command '{} {}'{} ({})", command->get_name(), word,
                                  near.empty() ? "; try " + join(known, ", ") : near, help),
                      kUsage);
    }
    if (word.starts_with("-")) {
      const std::string key = as_key(*command, word);
      return complain(
          fmt::format("unknown option '{}'{} ({})", name,
                      key.empty() ? did_you_mean(name, option_names(*command)) : key, help),
          kUsage);
    }
    return complain(fmt::format("unexpected argument '{}' ({})", word, help), kUsage);
  }
  return complain(fmt::format("{} ({})", in_our_words(error, *command), help), kUsage);
}

// Turns `headroom help` and `headroom help run` into --help.
std::vector<char*> with_help_as_option(int argc, char** argv) {
  static char option[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc < 2 || std::string_view(argv[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.resize(std::min<std::size_t>(words.size(), 3));  // a command, or a command of a group
  words.push_back(option);
  return words;
}

// The first word that is not an option: the command, known or unknown.
std::optional<std::string> first_word(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> options = option_names(app);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--gpus") ++i;
    // The word after an unknown option may be its value.
    const std::string option = word.substr(0, word.find('='));
    if (word.starts_with("--") &&
        std::find(options.begin(), options.end(), option) == options.end())
      return {};
    if (!word.starts_with("-")) return word;
  }
  return {};
}

// Index of the "--" of `headroom run`, after which another program's command line begins. CLI11
// must not see that: it would take words for commands of ours, and "--" for the end of `run`.
int end_of_ours(const std::optional<std::string>& command, int argc, char** argv) {
  if (command != "run" && command != "rehearse") return argc;
  return static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
}

// Names the command that does the work of one that people look for.
std::string known_otherwise(const std::string& word) {
  static const std::map<std::string, std::string> instead{
      {"swarm", "headroom run --detach -- COMMAND for each job"},
      {"start", "headroom train --dry-run, then headroom train"},
      {"launch", "headroom run --count N -- torchrun --nproc-per-node N train.py"},
  };
  const auto found = instead.find(word);
  return found == instead.end() ? "" : "; try " + found->second;
}

ExitCode complain_of_command(const std::string& word, const CLI::App& app) {
  const std::string otherwise = known_otherwise(word);
  return complain(
      fmt::format("unknown command '{}'{} (headroom --help)", word,
                  otherwise.empty() ? did_you_mean(word, command_names(app)) : otherwise),
      kUsage);
}

ExitCode run(int argc, char** argv) {
  CLI::App app{"Headroom predicts, shares and guards GPU memory for deep-learning training."};
  app.name("headroom");
  app.set_version_flag("--version", std::string("headroom ") + kVersion);
  app.footer(
      "Without a command, headroom shows the GPUs of the machine and their users.\n"
      "`headroom COMMAND --help` shows examples. No GPU? --gpus sim:8x24GiB simulates some.");
  app.formatter(std::make_shared<HelpText>());
  std::string gpus;
  app.add_option("--gpus", gpus, "GPUs to use (`headroom gpus --help` lists the values)");
  bool is_line = false;
  app.add_flag("--line", is_line, "Show the machine on one line, for prompts and status bars");
  Registry registry{.app = app, .chosen = {}, .behind_dashes = {}};
  registry.chosen = [&] { return is_line ? run_line(gpus) : run_overview(gpus); };
  for (const auto add :
       {&add_gpus,     &add_pick,      &add_run,   &add_attach, &add_history, &add_log,
        &add_top,      &add_queue,     &add_who,   &add_lease,  &add_clean,   &add_doctor,
        &add_estimate, &add_rehearse,  &add_fit,   &add_plan,   &add_bench,   &add_profile,
        &add_train,    &add_config,    &add_cards, &add_models, &add_trace,   &add_oom,
        &add_version,  &add_completion})
    add(registry);
  app.require_subcommand(0, 1);
  // CLI11 would show the general help for `headroom gpsu --help`.
  const std::vector<std::string> known = command_names(app);
  const auto word = first_word(app, argc, argv);
  if (word && std::find(known.begin(), known.end(), *word) == known.end())
    return complain_of_command(*word, app);
  const int ours = end_of_ours(word, argc, argv);
  if (ours < argc) registry.behind_dashes.assign(argv + ours + 1, argv + argc);
  try {
    app.parse(ours, argv);
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    (void)app.exit(help_or_version, text);
    return complaining([&] { return print(text.str()), kOk; });
  } catch (const CLI::ParseError& error) {
    return explain(error, app);
  }
  // `headroom --gpus X COMMAND` equals `headroom COMMAND --gpus X`; a command's own --gpus
  // overrides it.
  if (!gpus.empty()) ::setenv("HEADROOM_GPUS", gpus.c_str(), 1);  // no other thread runs yet
  return complaining(registry.chosen);
}

}  // namespace

int headroom_main(int argc, char** argv) {
  std::vector<char*> words = with_help_as_option(argc, argv);
  return run(static_cast<int>(words.size()), words.data());
}

}  // namespace headroom::cli

int main(int argc, char** argv) {
  return headroom::cli::headroom_main(argc, argv);
}
