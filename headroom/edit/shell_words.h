// The words of a command, also inside `bash -c "..."`, with the position of each character: a few
// characters can then be changed without touching the quotes and blanks around them.
//
// A clause is the argument list of one program: the command's own arguments, or the words between
// two operators of a shell text. A text that cannot be parsed (an open quote) has no clauses.
//
//   for (const Clause& clause : clauses_of({"bash", "-c", "prepare && python t.py --batch 64"}))
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace headroom::edit {

struct Word {
  std::size_t argument = 0;     // its number in the command
  std::string text;             // without its quotes
  std::vector<std::size_t> at;  // the position of each character in the argument
  std::size_t end = 0;          // the position after it, quotes included
  bool is_shell_text = false;   // a shell's text, whose words are in other clauses
};

struct Clause {
  std::vector<Word> words;
  bool in_shell = false;
};

// The command's own arguments first.
[[nodiscard]] std::vector<Clause> clauses_of(const std::vector<std::string>& command);

// Words as a shell splits them, without expansions. Throws UsageError for a quote without its end.
[[nodiscard]] std::vector<std::string> split_words(const std::string& text);

// The word as typed in a shell, quoted if necessary.
[[nodiscard]] std::string quoted(const std::string& word);

}  // namespace headroom::edit
