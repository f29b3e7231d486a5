#include "headroom/edit/shell_words.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::edit {
namespace {

// A shell's text, whose characters may stand inside quotes of an outer text.
struct Text {
  std::size_t argument = 0;
  std::string letters;
  std::vector<std::size_t> at;
};

class Lexer {
 public:
  explicit Lexer(const Text& text) : text_(text) {}

  // std::nullopt if a quote is open at the end.
  std::optional<std::vector<Clause>> run() {
    begin_clause();
    while (more() && !stopped_) {
      if (!step()) return {};
    }
    end_clause();
    return std::move(clauses_);
  }

 private:
  [[nodiscard]] bool more() const { return next_ < text_.letters.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return next_ + ahead < text_.letters.size() ? text_.letters[next_ + ahead] : '\0';
  }

  bool step() {
    const char c = peek();
    if (c == '\'' || c == '"') return quote(c);
    if (c == '\\') return escape();
    if (c == ' ' || c == '\t' || c == '\r') return end_word(), ++next_, true;
    if (c == '#' && !word_) return comment(), true;
    if (c == '<' || c == '>' || (c == '&' && peek(1) == '>')) return redirection(), true;
    if (std::string_view(";&|()\n").find(c) != std::string_view::npos) {
      end_clause();
      begin_clause();
      return ++next_, true;
    }
    return take(), true;
  }

  Word& word() {
    if (!word_) word_ = Word{.argument = text_.argument, .text = {}, .at = {}};
    return *word_;
  }
  // Takes the next character into the word.
  void take() {
    word().text += peek();
    word().at.push_back(text_.at[next_]);
    skip();
  }
  // Skips a quote of the word.
  void skip() {
    word().end = text_.at[next_] + 1;
    ++next_;
  }

  bool quote(char mark) {
    skip();
    while (more() && peek() != mark) {
      const bool escapes = mark == '"' && peek() == '\\' &&
                           std::string_view("$`\"\\\n").find(peek(1)) != std::string_view::npos;
      if (escapes && next_ + 1 < text_.letters.size()) skip();
      take();
    }
    if (!more()) return false;
    return skip(), true;
  }
  bool escape() {
    if (peek(1) == '\n') return end_word(), next_ += 2, true;  // a continued line
    if (next_ + 1 >= text_.letters.size()) return false;
    skip();
    return take(), true;
  }
  void comment() {
    while (more() && peek() != '\n') ++next_;
  }
  // The target after the sign is a word like others; the text of a here-document is not.
  void redirection() {
    end_word();
    const std::size_t begin = next_;
    while (more() && std::string_view("<>&|").find(peek()) != std::string_view::npos) ++next_;
    stopped_ = text_.letters.substr(begin, next_ - begin) == "<<";
  }

  void begin_clause() { clauses_.push_back({.words = {}, .in_shell = true}); }
  void end_word() {
    if (word_) clauses_.back().words.push_back(*std::move(word_));
    word_.reset();
  }
  void end_clause() {
    end_word();
    if (clauses_.back().words.empty()) clauses_.pop_back();
  }

  const Text& text_;
  std::size_t next_ = 0;
  std::optional<Word> word_;
  std::vector<Clause> clauses_;
  bool stopped_ = false;
};

bool is_shell(const std::string& program) {
  constexpr std::array<std::string_view, 6> kShells{"sh", "bash", "dash", "zsh", "ksh", "ash"};
  const std::string name = program.substr(program.rfind('/') + 1);
  return std::find(kShells.begin(), kShells.end(), name) != kShells.end();
}

// The number of the word with the text for the shell at `shell`, if `-c` is among its options.
std::optional<std::size_t> text_for_shell(const std::vector<Word>& words, std::size_t shell) {
  bool has_text = false;
  for (std::size_t i = shell + 1; i < words.size(); ++i) {
    const std::string& option = words[i].text;
    const bool is_option = option.size() > 1 && (option[0] == '-' || option[0] == '+');
    if (!is_option) return has_text ? std::optional(i) : std::nullopt;
    if (option.starts_with("--")) continue;
    if (option[0] == '-' && option.find('c') != std::string::npos) has_text = true;
    if (option.find_first_of("oO") != std::string::npos) ++i;  // its name follows
  }
  return {};
}

// Adds the clauses inside the last one. Each inner text is shorter, so the recursion ends.
void add_inner(std::vector<Clause>& all) {
  const std::size_t outer = all.size() - 1;
  for (std::size_t i = 0; i < all[outer].words.size(); ++i) {
    if (!is_shell(all[outer].words[i].text)) continue;
    const auto number = text_for_shell(all[outer].words, i);
    if (!number) continue;
    const Word text = all[outer].words[*number];
    auto inner = Lexer({text.argument, text.text, text.at}).run();
    if (!inner || text.is_shell_text) continue;
    all[outer].words[*number].is_shell_text = true;
    for (Clause& clause : *inner) {
      all.push_back(std::move(clause));
      add_inner(all);
    }
  }
}

Word whole_argument(const std::string& text, std::size_t argument) {
  Word word{.argument = argument, .text = text, .at = {}, .end = text.size()};
  for (std::size_t i = 0; i < text.size(); ++i) word.at.push_back(i);
  return word;
}

}  // namespace

std::vector<Clause> clauses_of(const std::vector<std::string>& command) {
  Clause own;
  for (std::size_t i = 0; i < command.size(); ++i)
    own.words.push_back(whole_argument(command[i], i));
  std::vector<Clause> all{own};
  add_inner(all);
  return all;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < text.size() &&
                         (quote == '\0' || text[i + 1] == '"' || text[i + 1] == '\\');
    if (escapes) {
      word += text[++i], open = true;
    } else if (quote != '\0' ? c == quote : (c == '"' || c == '\'')) {
      quote = quote == '\0' ? c : '\0', open = true;
    } else if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n')) {
      if (open) words.push_back(std::exchange(word, {}));
      open = false;
    } else {
      word += c, open = true;
    }
  }
  if (quote != '\0')
    throw UsageError(expectation("split_words", "a closing " + std::string(1, quote), text));
  if (open) words.push_back(word);
  return words;
}

std::string quoted(const std::string& word) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_./=:,+@%{}").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace headroom::edit
