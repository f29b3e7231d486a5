// `headroom completion bash|zsh|fish`: completion scripts generated from the commands themselves,
// so they are never out of date.
#include <map>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/settings_options.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/config/presets.h"
#include "headroom/config/training_keys.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::cli {
namespace {

std::string options_of(const CLI::App& command) {
  std::string words;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  return words;
}

std::string names_of(const CLI::App& group) {
  std::string names;
  for (const CLI::App* command : group.get_subcommands({})) names += command->get_name() + " ";
  return names;
}

// True if the argument may be a file: a model's config.json, or train.py:function.
bool takes_model(const CLI::App& command) {
  return command.get_option_no_throw("model") != nullptr;
}

std::string model_names() {
  std::string names;
  for (const model::CatalogueModel& model : model::catalogue_models()) names += model.name + " ";
  return names;
}

// ---- The keys of `headroom train` ----

bool takes_keys(const CLI::App& command) {
  return command.get_option_no_throw("settings") != nullptr;
}

std::string all_keys() {
  std::string keys;
  for (const config::Key& key : config::training_keys().keys()) keys += key.name + "= ";
  return keys;
}

// Those that a key can have, as far as there is a list: "cuda:" for "cuda:N".
std::string values_of(const config::Key& key) {
  if (key.kind == config::Kind::flag) return "true false";
  if (key.name == "model.config") return model_names();
  std::string values;
  for (std::string choice : key.choices) {
    if (choice.ends_with(":N")) choice.pop_back();
    values += (values.empty() ? "" : " ") + choice;
  }
  return values;
}

// ---- Words ----

// The command that lists the IDs which this one takes, or "" if it takes none.
std::string lister_of(const CLI::App& command) {
  return command.get_name() == "end"      ? "lease list"
         : command.get_name() == "attach" ? "attach"
                                          : "";
}

// Words that may follow a command besides its options.
std::string words_for(const CLI::App& command) {
  if (takes_model(command)) return model_names();
  if (takes_keys(command)) return all_keys();
  return command.get_name() == "completion" ? "bash zsh fish " : "";
}

std::string words_in_bash(const CLI::App& command) {
  const std::string lister = lister_of(command);
  return "words=\"" + options_of(command) + words_for(command) +
         (lister.empty() ? "" : "$(_headroom_ids " + lister + ")") + "\"";
}

// Words that may follow a command: its options; for a group, its commands, followed by their
// options and files.
std::string words_after(const CLI::App& command) {
  if (command.get_subcommands({}).empty())
    return words_in_bash(command) +
           (takes_model(command) || command.get_name() == "oom" ? "; files=-f" : "");
  std::string cases;
  for (const CLI::App* inner : command.get_subcommands({}))
    cases += "      " + inner->get_name() + ") " + words_in_bash(*inner) +
             (lister_of(*inner).empty() && !takes_keys(*inner) ? "; files=-f" : "") + " ;;\n";
  return "case \"${COMP_WORDS[2]}\" in\n" + cases + "      *) words=\"" + names_of(command) +
         "\" ;;\n    esac\n"
         "    [ \"$COMP_CWORD\" -eq 2 ] && words=\"" +
         names_of(command) + "\" files=";
}

// The values of each option that has a fixed set of them.
std::map<std::string, std::string> words_of_options() {
  std::map<std::string, std::string> all{{"--gpus", "auto all cpu sim:"},
                                         {"--format", "csv ndjson prometheus"},
                                         {"--order", "most-free least-loaded index"},
                                         {"--config-name", join(config::preset_names(), " ")},
                                         {"--addresses", "ascending descending lowest"},
                                         {"--by", "size module operation category"},
                                         {"--ids", "index uuid"},
                                         {"--rules", "cuda cpu"},
                                         {"--over", "batch seq"},
                                         {"--group-by", "operator shape module"},
                                         {"--sort-by",
                                          "self_bytes total_bytes self_kept_bytes cpu_bytes "
                                          "self_cpu_bytes device_s self_device_s cpu_s self_cpu_s "
                                          "calls name"}};
  for (const auto& [option, words] : SettingsOptions::words()) all[option] = words;
  return all;
}

std::string words_after_options() {
  std::string cases;
  for (const auto& [option, words] : words_of_options())
    cases +=
        "    " + option + ") COMPREPLY=($(compgen -W \"" + words + "\" -- \"$word\")); return ;;\n";
  return cases;
}

// `key=value`: bash takes `=` for a word of its own, zsh does not.
std::string values_after_keys() {
  std::string cases;
  for (const config::Key& key : config::training_keys().keys()) {
    const std::string values = values_of(key);
    const bool is_path = key.kind == config::Kind::text;
    if (!values.empty() || is_path)
      cases +=
          "    " + key.name + ") words=\"" + values + "\"" + (is_path ? " files=-f" : "") + " ;;\n";
  }
  return "_headroom_value() {\n"
         "  local words= files= value=\"$2\"\n"
         "  case \"${1#training.}\" in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=($(compgen $files -P \"$3\" -W \"$words\" -- \"$value\"))\n"
         "}\n";
}

constexpr const char* kIds =
    "_headroom_ids() {\n"
    "  \"${COMP_WORDS[0]}\" \"$@\" --json 2> /dev/null | grep -o '\"id\":\"[^\"]*\"' | cut -d'\"' "
    "-f4\n"
    "}\n";

// After "--" another program's command line begins: its name, then its own completion if
// bash-completion has one, else files.
constexpr const char* kBehindDashes =
    "_headroom_behind_dashes() {\n"
    "  local at\n"
    "  for ((at = 2; at < COMP_CWORD; at++)); do\n"
    "    [ \"${COMP_WORDS[at]}\" = -- ] || continue\n"
    "    if type _command_offset > /dev/null 2>&1; then _command_offset $((at + 1)); return 0; "
    "fi\n"
    "    compopt -o filenames 2> /dev/null\n"
    "    COMPREPLY=($([ $COMP_CWORD -gt $((at + 1)) ] || compgen -c -- \"$1\"; compgen -f -- "
    "\"$1\"))\n"
    "    return 0\n"
    "  done\n"
    "  return 1\n"
    "}\n";

std::string bash_script(const CLI::App& app) {
  std::string cases;
  const std::string names = names_of(app);
  for (const CLI::App* command : app.get_subcommands({}))
    cases += "    " + command->get_name() + ") " + words_after(*command) + " ;;\n";
  return kBehindDashes + values_after_keys() + kIds +
         "_headroom() {\n"
         "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" words "
         "files= program=\n"
         "  if [ \"${COMP_WORDS[1]}\" = run ] && _headroom_behind_dashes \"$word\"; then return; "
         "fi\n"
         "  if [ \"$word\" = : ]; then program=\"${COMP_WORDS[COMP_CWORD-1]}\" word=\n"
         "  elif [ \"$before\" = : ]; then program=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
         "  case \"$program\" in  # a function of train.py:\n"
         "    *.py) words=\"$(sed -n 's/^def \\([[:alnum:]_]*\\)(.*/\\1/p' \"$program\" "
         "2>/dev/null)\"\n"
         "      COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return ;;\n"
         "  esac\n"
         "  case \"$before\" in\n" +
         words_after_options() +
         "    --out|--bundle|--trace|--config|--html|--snapshot) COMPREPLY=($(compgen -f -- "
         "\"$word\")); return ;;\n"
         "  esac\n"
         "  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in train\\ *|config\\ explain)\n"
         "    if [ \"$word\" = = ]; then _headroom_value \"$before\" \"\" \"\"; return; fi\n"
         "    if [ \"$before\" = = ]; then\n"
         "      _headroom_value \"${COMP_WORDS[COMP_CWORD-2]}\" \"$word\" \"\"; return; fi\n"
         "    case \"$word\" in -*) ;; *=*)\n"
         "      _headroom_value \"${word%%=*}\" \"${word#*=}\" \"${word%%=*}=\"; return ;; esac "
         ";;\n"
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         cases + "    *) words=\"" + names + options_of(app) +
         "\" ;;\n"
         "  esac\n"
         "  [ \"$COMP_CWORD\" -eq 1 ] && words=\"" +
         names + options_of(app) +
         "\"\n"
         "  COMPREPLY=($(compgen $files -W \"$words\" -- \"$word\"))\n"
         "  case \"${COMPREPLY[0]}\" in *=) compopt -o nospace 2> /dev/null ;; esac\n"
         "  return 0\n"
         "}\n"
         "complete -F _headroom headroom\n";
}

// zsh can use bash's completion after bashcompinit.
std::string zsh_script(const CLI::App& app) {
  return "#compdef headroom\n"
         "# zsh completion for headroom:  source <(headroom completion zsh), or this file in "
         "$fpath\n"
         "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
         "autoload -Uz bashcompinit && bashcompinit\n" +
         bash_script(app) +
         "# Called as a function of $fpath: this time, too.\n"
         "[[ $funcstack[1] = _headroom ]] && _bash_complete -F _headroom\n"
         "true\n";
}

// fish escapes quotes with a backslash: 'it''s' would be two words.
std::string in_quotes(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, text.find('\n'))) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string fish_options(const CLI::App& command, const std::string& condition) {
  static const std::map<std::string, std::string> words = words_of_options();
  std::string lines;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) {
      const auto known = words.find("--" + name);
      lines += "complete -c headroom -n \"" + condition + "\" -l " + name +
               (option->get_items_expected_max() > 0 ? " -r" : "") +
               (known != words.end() ? " -f -a " + in_quotes(known->second) : "") + " -d " +
               in_quotes(option->get_description()) + "\n";
    }
  return lines;
}

std::string fish_line(const std::string& condition, const std::string& more) {
  return "complete -c headroom -n \"" + condition + "\" " + more + "\n";
}

// `model=lora model=full ... batch_size= ...`, and the IDs that a command takes.
std::string fish_words(const CLI::App& command, const std::string& condition) {
  if (const std::string lister = lister_of(command); !lister.empty())
    return fish_line(condition,
                     "-f -a \"(headroom " + lister +
                         " --json 2> /dev/null | string match -rga '\\\"id\\\":\\\"([^\\\"]*)')\"");
  if (!takes_keys(command)) return "";
  std::string words;
  for (const config::Key& key : config::training_keys().keys()) {
    const std::string values = values_of(key);
    for (const std::string_view value : split(values, ' '))
      words += (words.empty() ? "" : " ") + key.name + "=" + std::string(value);
  }
  return fish_line(condition, "-a " + in_quotes(words));
}

std::string fish_script(const CLI::App& app) {
  const std::string first = "not __headroom_behind; and __fish_use_subcommand";
  std::string text =
      "# fish completion for headroom:  headroom completion fish | source\n"
      "function __headroom_behind\n"
      "  contains -- -- (commandline -opc)\n"
      "end\n"
      "complete -c headroom -f\n"
      "complete -c headroom -n __headroom_behind -F"
      " -a \"(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline "
      "-opc))))\"\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = command->get_name();
    const std::string then = "not __headroom_behind; and __fish_seen_subcommand_from " + name;
    text += "complete -c headroom -n \"" + first + "\" -a " + name + " -d " +
            in_quotes(command->get_description()) + "\n" + fish_options(*command, then);
    const std::string names = names_of(*command);
    if (!names.empty()) text += "complete -c headroom -n \"" + then + "\" -F -a '" + names + "'\n";
    for (const CLI::App* inner : command->get_subcommands({})) {
      const std::string both = then + "; and __fish_seen_subcommand_from " + inner->get_name();
      text += fish_options(*inner, both) + fish_words(*inner, both);
    }
    text += fish_words(*command, then);
    if (const std::string words = takes_keys(*command) ? "" : words_for(*command); !words.empty())
      text += "complete -c headroom -n \"" + then + "\"" + (takes_model(*command) ? " -F" : "") +
              " -a '" + words + "'\n";
  }
  return text;
}

using Script = std::string (*)(const CLI::App&);

Script script_for(const std::string& shell) {
  if (shell == "bash")
    return [](const CLI::App& app) {
      return "# bash completion for headroom:  source <(headroom completion bash)\n" +
             bash_script(app);
    };
  if (shell == "zsh") return &zsh_script;
  if (shell == "fish") return &fish_script;
  throw UsageError(expectation("completion", "bash, zsh or fish", shell, "bash"));
}

}  // namespace

void add_completion(Registry& registry) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* command = registry.add("completion", "Print the completion script for a shell",
                                   "  source <(headroom completion bash)\n"
                                   "  headroom completion bash > "
                                   "~/.local/share/bash-completion/completions/headroom\n"
                                   "  source <(headroom completion zsh)\n"
                                   "  headroom completion fish | source");
  command->add_option("shell", *shell, "bash, zsh or fish")->capture_default_str();
  command->callback([&registry, shell] {
    registry.chosen = [&registry, shell] {
      print(script_for(*shell)(registry.app));
      return kOk;
    };
  });
}

}  // namespace headroom::cli
