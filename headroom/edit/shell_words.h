// The words of a command, those inside `bash -c "..."` too, with the place of each letter: so that
// a few letters can be changed without touching quotes or blanks around them.
//
// A clause is what one program gets: the arguments themselves, or what stands between the operators
// of a shell's text. Texts that are not understood (a quote without its end) have no clauses.
//
//   for (const Clause& clause : clauses_of({"bash", "-c", "prepare && python t.py --batch 64"}))
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace headroom::edit {

struct Word {
  std::size_t argument = 0;     // of the command
  std::string text;             // without its quotes
  std::vector<std::size_t> at;  // where each letter of it stands in the argument
  std::size_t end = 0;          // behind it, quotes included
  bool is_shell_text = false;   // its own words are those of other clauses
};

struct Clause {
  std::vector<Word> words;
  bool in_shell = false;
};

// The command's own arguments first.
[[nodiscard]] std::vector<Clause> clauses_of(const std::vector<std::string>& command);

// Words as a shell splits them, without expansions. Throws UsageError for a quote without its end.
[[nodiscard]] std::vector<std::string> split_words(const std::string& text);

// As one could type it: quoted where it has to be.
[[nodiscard]] std::string quoted(const std::string& word);

}  // namespace headroom::edit
