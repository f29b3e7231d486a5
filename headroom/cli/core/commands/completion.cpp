// `headroom completion bash`: completion written from the commands themselves, so it cannot be
// behind.
#include "headroom/base/error.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/settings_options.h"
#include "headroom/cli/core/terminal.h"

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

// Whether its argument may be a file: a model's config.json, or train.py:function.
bool takes_model(const CLI::App& command) {
  return command.get_option_no_throw("model") != nullptr;
}

// What may follow a command: its options; of a group, its commands, and behind them their options
// and files.
std::string words_after(const CLI::App& command) {
  if (command.get_subcommands({}).empty())
    return "words=\"" + options_of(command) + "\"" + (takes_model(command) ? "; files=-f" : "");
  std::string cases;
  for (const CLI::App* inner : command.get_subcommands({}))
    cases += "      " + inner->get_name() + ") words=\"" + options_of(*inner) + "\"; files=-f ;;\n";
  return "case \"${COMP_WORDS[2]}\" in\n" + cases + "      *) words=\"" + names_of(command) +
         "\" ;;\n    esac\n"
         "    [ \"$COMP_CWORD\" -eq 2 ] && words=\"" +
         names_of(command) + "\" files=";
}

// What may follow an option whose words are known.
std::string words_after_options() {
  std::string cases;
  for (const auto& [option, words] : SettingsOptions::words())
    cases +=
        "    " + option + ") COMPREPLY=($(compgen -W \"" + words + "\" -- \"$word\")); return ;;\n";
  return cases;
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  const std::string names = names_of(app);
  for (const CLI::App* command : app.get_subcommands({}))
    cases += "    " + command->get_name() + ") " + words_after(*command) + " ;;\n";
  return "# bash completion for headroom:  source <(headroom completion bash)\n"
         "_headroom() {\n"
         "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" words "
         "files= program=\n"
         "  if [ \"$word\" = : ]; then program=\"${COMP_WORDS[COMP_CWORD-1]}\" word=\n"
         "  elif [ \"$before\" = : ]; then program=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
         "  case \"$program\" in  # a function of train.py:\n"
         "    *.py) words=\"$(sed -n 's/^def \\([[:alnum:]_]*\\)(.*/\\1/p' \"$program\" "
         "2>/dev/null)\"\n"
         "      COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return ;;\n"
         "  esac\n"
         "  case \"$before\" in\n"
         "    --gpus) COMPREPLY=($(compgen -W \"auto all cpu sim:\" -- \"$word\")); return ;;\n"
         "    --format) COMPREPLY=($(compgen -W \"csv ndjson prometheus\" -- \"$word\")); return "
         ";;\n"
         "    --order) COMPREPLY=($(compgen -W \"most-free least-loaded index\" -- \"$word\"));"
         " return ;;\n"
         "    --addresses) COMPREPLY=($(compgen -W \"ascending descending lowest\" -- \"$word\"));"
         " return ;;\n"
         "    --by) COMPREPLY=($(compgen -W \"size module operation category\" -- \"$word\"));"
         " return ;;\n"
         "    --ids) COMPREPLY=($(compgen -W \"index uuid\" -- \"$word\")); return ;;\n"
         "    --rules) COMPREPLY=($(compgen -W \"cuda cpu\" -- \"$word\")); return ;;\n"
         "    --over) COMPREPLY=($(compgen -W \"batch seq\" -- \"$word\")); return ;;\n" +
         words_after_options() +
         "    --out|--bundle|--trace) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         cases + "    *) words=\"" + names + options_of(app) +
         "\" ;;\n"
         "  esac\n"
         "  [ \"$COMP_CWORD\" -eq 1 ] && words=\"" +
         names + options_of(app) +
         "\"\n"
         "  COMPREPLY=($(compgen $files -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -F _headroom headroom\n";
}

}  // namespace

void add_completion(Registry& registry) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* command = registry.add("completion", "Print the completion script for a shell",
                                   "  source <(headroom completion bash)\n"
                                   "  headroom completion bash > "
                                   "~/.local/share/bash-completion/completions/headroom");
  command->add_option("shell", *shell, "bash")->capture_default_str();
  command->callback([&registry, shell] {
    registry.chosen = [&registry, shell] {
      if (*shell != "bash") throw UsageError(expectation("completion", "bash", *shell, "bash"));
      print(bash_script(registry.app));
      return kOk;
    };
  });
}

}  // namespace headroom::cli
