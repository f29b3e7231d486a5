#include "headroom/cli/core/command_behind.h"

#include "headroom/base/error.h"
#include "headroom/base/text.h"

namespace headroom::cli {

std::vector<std::string> command_behind(const CLI::App& command,
                                        const std::vector<std::string>& behind_dashes,
                                        const std::string& example) {
  std::vector<std::string> words = command.remaining();
  if (words.empty() && !behind_dashes.empty()) return behind_dashes;
  if (!behind_dashes.empty()) words.push_back("--");  // then it belongs to the command
  words.insert(words.end(), behind_dashes.begin(), behind_dashes.end());
  if (words.empty()) throw UsageError("no command given; try " + example);
  if (!words.front().starts_with("-")) return words;
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string word = words.front().substr(0, words.front().find('='));
  const auto close = nearest(word, known);
  throw UsageError("unknown option '" + word + "'" +
                   (close ? "; did you mean '" + *close + "'?" : "") + " (headroom " +
                   command.get_name() + " --help)");
}

}  // namespace headroom::cli
