#include "headroom/edit/detail/command_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/edit/shell_words.h"

namespace headroom::edit::detail {
namespace {

// The part of a word that holds the value.
struct Match {
  const Word* value = nullptr;
  std::size_t from = 0;  // its characters from here on
  bool joined = false;   // name and value in one word
};

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<Match> flag_at(const std::vector<Word>& words, std::size_t i,
                             const std::string& flag) {
  const Word& word = words[i];
  if (word.text == flag) {
    if (i + 1 == words.size()) return Match{&word, flag.size(), true};
    return Match{&words[i + 1], 0, false};
  }
  if (!word.text.starts_with(flag)) return {};
  if (word.text[flag.size()] == '=') return Match{&word, flag.size() + 1, true};
  const bool is_letter = flag.size() == 2 && flag[0] == '-';  // -b64
  if (is_letter && all_digits(std::string_view(word.text).substr(2))) return Match{&word, 2, true};
  return {};
}

std::optional<Match> key_at(const std::vector<Word>& words, std::size_t i, const std::string& key) {
  const Word& word = words[i];
  const std::size_t plus =
      std::min({word.text.find_first_not_of('+'), word.text.size(), std::size_t{2}});
  if (word.text.compare(plus, key.size(), key) != 0) return {};
  if (word.text.size() <= plus + key.size() || word.text[plus + key.size()] != '=') return {};
  return Match{&word, plus + key.size() + 1, true};
}

bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || (word[0] >= '0' && word[0] <= '9'))
    return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// NAME=value before the program: at the start of a shell's clause, or after env or export.
bool sets_variable(const Clause& clause, std::size_t i) {
  const std::vector<Word>& words = clause.words;
  while (i > 0) {
    const std::string& before = words[i - 1].text;
    const std::string program = before.substr(before.rfind('/') + 1);
    if (program == "env" || program == "export" || program == "sudo") return true;
    const bool names = i > 1 && (words[i - 2].text == "-u" || words[i - 2].text == "--unset" ||
                                 words[i - 2].text == "-C" || words[i - 2].text == "--chdir");
    if (!names && !before.starts_with('-') && !is_assignment(before)) return false;
    i -= names ? 2 : 1;
  }
  return clause.in_shell;
}

std::optional<Match> match_at(const Clause& clause, std::size_t i, const Mapping& mapping) {
  if (clause.words[i].is_shell_text) return {};
  if (mapping.form == Form::flag) return flag_at(clause.words, i, mapping.name);
  if (mapping.form == Form::variable && !sets_variable(clause, i)) return {};
  const auto match = key_at(clause.words, i, mapping.name);
  const bool plain = match && match->from == mapping.name.size() + 1;
  if (mapping.form == Form::variable && !plain) return {};
  return match;
}

CommandValue value_of(const Match& match, const Mapping& mapping) {
  const Word& word = *match.value;
  CommandValue value{.text = word.text.substr(match.from), .edit = {.argument = word.argument}};
  if (value.text.empty()) return value;
  value.edit.at = word.at[match.from];
  value.edit.length = word.at.back() + 1 - value.edit.at;
  if (value.edit.length != value.text.size())
    throw UsageError(expectation("--map " + mapping.text, "the value in one piece",
                                 "quotes in the middle of " + value.text));
  return value;
}

std::optional<CommandValue> last_in(const Clause& clause, const Mapping& mapping) {
  std::optional<Match> last;
  int times = 0;
  for (std::size_t i = 0; i < clause.words.size(); ++i) {
    if (const auto match = match_at(clause, i, mapping)) last = match, ++times;
  }
  if (!last) return {};
  CommandValue value = value_of(*last, mapping);
  value.times = times;
  return value;
}

// ---- A place for a value ----

struct Neighbour {
  const Clause* clause = nullptr;
  Match match;
};

std::vector<Neighbour> neighbours(const std::vector<Clause>& clauses, const Mapping& mapping) {
  std::vector<Neighbour> all;
  for (const Clause& clause : clauses) {
    for (std::size_t i = clause.words.size(); i > 0; --i) {
      const auto match = match_at(clause, i - 1, mapping);
      if (match) all.push_back({&clause, *match});
      if (match) break;
    }
  }
  return all;
}

[[noreturn]] void refuse_room(const Mapping& mapping) {
  const std::string word = mapping.form == Form::flag ? mapping.name + " 1" : mapping.name + "=1";
  throw UsageError(
      fmt::format("[--map {}] expected {} in the command, received a command without it, in which "
                  "its position is unclear; try {} in the command itself",
                  mapping.text, mapping.place(), word));
}

// The words before the value: "--flag", or "key=".
std::vector<std::string> words_for(const Mapping& mapping, bool joined) {
  if (mapping.form == Form::key) return {mapping.plus + mapping.name + "="};
  const bool is_letter = mapping.name.size() == 2 && mapping.name[0] == '-';
  if (joined && !is_letter) return {mapping.name + "="};
  return {mapping.name, ""};
}

Edit room_in_shell(const Word& behind, const std::vector<std::string>& words) {
  return {
      .argument = behind.argument, .at = behind.end, .length = 0, .before = " " + join(words, " ")};
}

// Parsed again after the edit, the command has exactly `count` more words.
bool is_sound(const std::vector<std::string>& command, const Edit& edit, std::size_t count) {
  std::vector<std::string> changed = command;
  apply({edit}, changed);
  std::vector<Clause> before = clauses_of(command), after = clauses_of(changed);
  if (before.size() != after.size()) return false;
  std::size_t more = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::size_t added = after[i].words.size() - before[i].words.size();
    if (added != 0 && added != count) return false;
    more += added;
  }
  return more == count;
}

}  // namespace

Edit Edit::put(const std::string& value) const {
  Edit filled = *this;
  if (filled.arguments.empty())
    filled.before += value + std::exchange(filled.after, {});
  else
    filled.arguments.back() += value;
  return filled;
}

// From the end to the start, so that the other positions stay valid.
void apply(std::vector<Edit> edits, std::vector<std::string>& texts) {
  const auto order = [](const Edit& edit) {  // an argument's own edits come first
    return std::pair(edit.argument, edit.arguments.empty() ? edit.at + 1 : 0);
  };
  std::stable_sort(edits.begin(), edits.end(),
                   [&](const Edit& a, const Edit& b) { return order(a) > order(b); });
  for (const Edit& edit : edits) {
    const auto place = texts.begin() + static_cast<std::ptrdiff_t>(edit.argument);
    if (edit.arguments.empty())
      place->replace(edit.at, edit.length, edit.before + edit.after);
    else
      texts.insert(place, edit.arguments.begin(), edit.arguments.end());
  }
}

std::vector<CommandValue> values_in(const std::vector<std::string>& command,
                                    const Mapping& mapping) {
  std::vector<CommandValue> values;
  const std::vector<Clause> clauses = clauses_of(command);
  for (std::size_t i = 0; i < clauses.size(); ++i) {
    auto value = last_in(clauses[i], mapping);
    if (!value) continue;
    value->clause = i;
    values.push_back(*std::move(value));
  }
  return values;
}

Edit room_for(const std::vector<std::string>& command, const Mapping& mapping,
              const Mapping* beside) {
  const std::vector<Clause> clauses = clauses_of(command);
  std::vector<Neighbour> found;
  if (beside != nullptr && beside->form == mapping.form) found = neighbours(clauses, *beside);
  if (found.size() > 1) refuse_room(mapping);
  const Clause* clause = found.empty() ? &clauses.back() : found[0].clause;
  const bool unclear = found.empty() && clauses.size() > 2;
  if (unclear || clause->words.empty()) refuse_room(mapping);
  const Word& behind = found.empty() ? clause->words.back() : *found[0].match.value;
  const auto words = words_for(mapping, !found.empty() && found[0].match.joined);
  if (!clause->in_shell)
    return {.argument = behind.argument + 1, .at = 0, .length = 0, .arguments = words};
  const Edit edit = room_in_shell(behind, words);
  const bool plain = quoted(join(words, "")) == join(words, "");
  if (!plain || !is_sound(command, edit.put("2"), words.size())) refuse_room(mapping);
  return edit;
}

std::vector<std::string> with_arguments(const std::vector<std::string>& command,
                                        const std::vector<std::string>& arguments,
                                        const Mapping* beside) {
  std::vector<std::string> changed = command;
  const std::vector<Clause> clauses = clauses_of(command);
  const Clause* clause = &clauses.back();
  const bool passes_on = std::any_of(clauses.begin(), clauses.end(), [](const Clause& one) {
    return one.in_shell && std::any_of(one.words.begin(), one.words.end(), [](const Word& word) {
             return word.text == "$@" || word.text == "$*";
           });
  });
  const auto found = beside == nullptr ? std::vector<Neighbour>{} : neighbours(clauses, *beside);
  if (found.size() == 1) clause = found[0].clause;
  const bool is_argument = !clause->in_shell && (found.size() == 1 || clauses.size() == 1);
  if (is_argument || (found.empty() && passes_on)) {
    changed.insert(changed.end(), arguments.begin(), arguments.end());
    return changed;
  }
  std::string text;
  for (const std::string& argument : arguments) text += " " + quoted(argument);
  const bool is_clear = found.size() == 1 || (found.empty() && clauses.size() == 2);
  if (is_clear && !clause->words.empty()) {
    const Word& last = clause->words.back();
    const Edit edit{.argument = last.argument, .at = last.end, .length = 0, .before = text};
    apply({edit}, changed);
    if (is_sound(command, edit, arguments.size())) return changed;
  }
  throw UsageError(
      fmt::format("[--resume-arg] expected one program to add{} to, received shell code with more "
                  "than one candidate; try a script that passes \"$@\" on",
                  text));
}

std::optional<std::string> nearest_name(const std::vector<std::string>& command,
                                        const Mapping& mapping) {
  std::vector<std::string> names;
  for (const Clause& clause : clauses_of(command)) {
    for (const Word& word : clause.words) {
      if (word.is_shell_text) continue;
      const bool named = word.text.starts_with('-') || word.text.find('=') != std::string::npos;
      if (named) names.push_back(word.text.substr(0, word.text.find('=')));
    }
  }
  // First a longer name that contains it: "--batch-size" for "batch", "optimizer.lr" for "lr".
  const std::size_t begin = mapping.name.find_first_not_of('-');
  const std::string bare = mapping.name.substr(std::min(begin, mapping.name.size()));
  for (const std::string& name : names) {
    if (bare.size() > 1 && name.find(bare) != std::string::npos && name != mapping.name)
      return name;
  }
  return nearest(mapping.name, names);
}

}  // namespace headroom::edit::detail
