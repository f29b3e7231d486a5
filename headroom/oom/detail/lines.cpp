#include "headroom/oom/detail/lines.h"

#include <algorithm>
#include <array>

#include "headroom/base/text.h"
#include "headroom/oom/detail/amount_in_log.h"
#include "headroom/oom/detail/pattern.h"
#include "headroom/oom/detail/quotations.h"

namespace headroom::oom::detail {
namespace {

constexpr std::size_t kLongestLine = 8192;

// The position after an escape sequence at `at` (colours, cursor movements, window titles).
std::size_t after_escape(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size()) return text.size();
  if (text[at + 1] == ']') {
    const std::size_t end = text.find('\a', at);
    return end == std::string_view::npos ? at + 2 : end + 1;
  }
  if (text[at + 1] != '[') return at + 2;
  std::size_t end = at + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size());
}

// "[36m", "[0m": the rest of a colour whose escape character was lost.
std::size_t after_orphan_colour(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (is_digit(text[end]) || text[end] == ';')) ++end;
  return end > at + 1 && end < text.size() && text[end] == 'm' ? end + 1 : at;
}

std::string without_colours(std::string_view text) {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t next = at;
    if (text[at] == '\x1b') next = after_escape(text, at);
    if (text[at] == '[') next = after_orphan_colour(text, at);
    if (next == at) clean += text[next++];
    at = next;
  }
  return clean;
}

struct Replacement {
  std::string_view from, to;
};
// Typographic quotes, non-breaking blanks, box drawings of pretty tracebacks.
constexpr Replacement kReplacements[] = {{"\u2018", "'"},  {"\u2019", "'"},  {"\u201c", "\""},
                                         {"\u201d", "\""}, {"\u00ab", "\""}, {"\u00bb", "\""},
                                         {"\u00a0", " "},  {"\u2502", " "},  {"\u2503", " "},
                                         {"\u2551", " "},  {"\uff1a", ":"}};

// Straight quotes and ordinary blanks. Keeps the number of blanks, except at the end.
std::string plain(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const Replacement* replacement = nullptr;
    if (static_cast<unsigned char>(text[at]) >= 0x80)
      for (const Replacement& candidate : kReplacements)
        if (text.substr(at).starts_with(candidate.from)) replacement = &candidate;
    const std::string_view next = replacement ? replacement->to : text.substr(at, 1);
    at += replacement ? replacement->from.size() : 1;
    const bool blank = static_cast<unsigned char>(next[0]) <= ' ' || next[0] == '\x7f';
    result += blank ? std::string_view(" ") : next;
  }
  while (result.ends_with(' ')) result.pop_back();
  return result;
}

std::size_t after_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] == ' ') ++at;
  return at;
}

std::string with_single_blanks(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c != ' ' || (!result.empty() && result.back() != ' ')) result += c;
  return result;
}

// True if a bracket before a message holds a rank, a time or a level. The name of a component
// ("[CUDA] out of memory", "[metal::malloc] ...") is part of the message.
bool is_about_message(std::string_view bracket) {
  constexpr auto kLevels = std::to_array<std::string_view>(
      {"info", "warn*", "error", "fatal", "debug", "trace", "e", "w", "critical"});
  if (bracket.find("::") != std::string_view::npos) return false;
  return bracket.find_first_of("0123456789") != std::string_view::npos ||
         matches_any(kLevels, lower(bracket));
}

// The position after "(Worker pid=12) ", "[rank0]: ", "[1,0]<stderr>:".
std::size_t after_bracket(std::string_view text) {
  const std::size_t end = text.find(text[0] == '(' ? ')' : ']');
  if (end == std::string_view::npos || end > 80) return 0;
  const std::string_view inside = text.substr(1, end - 1);
  if (text[0] == '[' && !is_about_message(inside)) return 0;
  if (inside.ends_with("Error") || inside.ends_with("Exception")) return 0;  // the thrown exception
  std::size_t next = end + 1;
  if (text.substr(next).starts_with("<stderr>") || text.substr(next).starts_with("<stdout>"))
    next += 8;
  if (next < text.size() && text[next] == ':') ++next;
  return next;
}

// The position after "FAILED tests/a.py::test_b - ": the rest is the test's message.
std::size_t after_name_of_test(std::string_view text) {
  const std::size_t dash = text.find(" - ");
  if (dash == std::string_view::npos) return 0;
  const std::string_view name = text.substr(0, dash);
  return name.find("::") != std::string_view::npos ? dash + 3 : 0;
}

// True for a prefix that names the speaker, not a time or a place in the source: "[rank3]:",
// "(Worker pid=12)", "[1,0]<stderr>:", "12: ", "trainer-1 | ".
bool names_speaker(std::string_view prefix) {
  constexpr auto kSpeakers =
      std::to_array<std::string_view>({"*rank*#", "*pid=#", "[#,#]<*", "#: ", "worker*#", "*# *|"});
  return matches_any(kSpeakers, lower(prefix));
}

// The position after "vllm-1 | ", "rank 3 | ".
std::size_t after_bar(std::string_view text) {
  const std::size_t bar = text.find(" | ");
  if (bar == std::string_view::npos || bar == 0 || bar > 40) return 0;
  const std::string_view name = trim(text.substr(0, bar));
  if (name.find_first_not_of("0123456789") == std::string_view::npos) return 0;  // a line of code
  const bool one_word = name.find(' ') == std::string_view::npos;
  return one_word || matches("rank #", lower(name)) ? bar + 3 : 0;
}

// The position after "12: ", "rank 3: ".
std::size_t after_number_of_rank(std::string_view text) {
  std::size_t at = lower(text.substr(0, 4)) == "rank" ? 4 : 0;
  if (at > 0 && at < text.size() && text[at] == ' ') ++at;
  std::size_t digits = 0;
  while (at + digits < text.size() && is_digit(text[at + digits])) ++digits;
  const bool ends = text.substr(std::min(at + digits, text.size())).starts_with(": ");
  return digits > 0 && digits <= 4 && ends ? at + digits + 2 : 0;
}

// The position after any of these prefixes, or after "> " and pytest's "E ".
std::size_t after_prefix(std::string_view text) {
  if (text.starts_with("> ") || text.starts_with("E   ")) return 2;
  if (text.starts_with('(') || text.starts_with('[')) return after_bracket(text);
  if (text.starts_with("FAILED ") || text.starts_with("ERROR ")) return after_name_of_test(text);
  if (const std::size_t bar = after_bar(text)) return bar;
  return after_number_of_rank(text);
}

// Makes "[rank3]:" and "Rank 3 |" equal.
std::string letters_and_digits(std::string_view prefix) {
  std::string name = lower(prefix);
  std::erase_if(name, [](char c) { return !is_word_character(c); });
  return name;
}

struct Prefixes {
  std::size_t end = 0;
  std::string who;
};

Prefixes prefixes_of(std::string_view text) {
  Prefixes prefixes{.end = after_blanks(text, 0), .who = {}};
  for (int i = 0; i < 4; ++i) {
    const std::string_view rest = text.substr(prefixes.end);
    const std::size_t size = after_prefix(rest);
    if (size == 0 || after_blanks(rest, size) >= rest.size()) break;
    const std::string name = letters_and_digits(rest.substr(0, size));
    const bool better = prefixes.who.empty() || name.find("rank") != std::string::npos;
    if (names_speaker(rest.substr(0, size)) && better) prefixes.who = name;
    prefixes.end = after_blanks(text, prefixes.end + size);
  }
  return prefixes;
}

struct Word {
  std::string_view pattern;
  Level level;
};

// The level as loggers write it near the beginning of a line; the first word found counts.
Level level_by_word(std::string_view head) {
  constexpr auto kWords =
      std::to_array<Word>({{"ERROR", Level::error},
                           {"CRITICAL", Level::error},
                           {"FATAL", Level::error},
                           {"NCCL WARN", Level::error},  // NCCL's only word for an error
                           {"WARNING", Level::warning},
                           {"WARN", Level::warning},
                           {"*Warning: ", Level::warning},
                           {"warning: ", Level::warning},
                           {"INFO", Level::debug},
                           {"DEBUG", Level::debug},
                           {"level=warn*", Level::warning},
                           {"level=info", Level::debug},
                           {"level\":*\"warn*", Level::warning},
                           {"level\":*\"info", Level::debug},
                           {"severity\":*\"warn*", Level::warning},
                           {"severity\":*\"info", Level::debug}});
  std::size_t first = head.size();
  Level level = Level::none;
  for (const Word& word : kWords) {
    const auto found = find(word.pattern, head, first);
    if (!found) continue;
    first = found->begin;
    level = word.level;
  }
  return level;
}

// The level by a letter: glog's ("W0810 10:52:50", "[E ProcessGroupNCCL"), TensorFlow's
// (": I tensorflow/"), TensorRT's ("[E] [TRT]"), Optuna's ("[W 2025-01-31"), PyTorch's
// ("[W928 07:22:40"), ONNX Runtime's ("[E:onnxruntime"). TensorFlow's W gets no level: in many
// failures it is the last message.
Level level_by_letter(std::string_view head) {
  constexpr auto kLetters = std::to_array<Word>({{": I tensorflow/", Level::debug},
                                                 {": I external/", Level::debug},
                                                 {": E tensorflow/", Level::error},
                                                 {"[E] ", Level::error},
                                                 {"[W] ", Level::warning},
                                                 {"[I] ", Level::debug},
                                                 {"[W #-#-#", Level::warning},
                                                 {"[I #-#-#", Level::debug},
                                                 {"[W# #:#", Level::warning},
                                                 {"[W *.cpp:#", Level::warning},
                                                 {"[E:onnx*", Level::error},
                                                 {"[W:onnx*", Level::warning},
                                                 {"[I:onnx*", Level::debug}});
  for (const Word& letter : kLetters)
    if (matches(letter.pattern, head)) return letter.level;
  if (head.starts_with("I tensorflow/")) return Level::debug;
  const bool glog = head.size() > 5 && is_digit(head[1]) && is_digit(head[2]) &&
                    is_digit(head[3]) && (is_digit(head[4]) || head[4] == ' ');
  if (glog && head[0] == 'I') return Level::debug;
  if (glog && head[0] == 'W') return Level::warning;
  if (glog && (head[0] == 'E' || head[0] == 'F')) return Level::error;
  return Level::none;
}

Level level_of(std::string_view text) {
  const std::string_view head = text.substr(0, 160);
  const Level letter = level_by_letter(head);
  return letter != Level::none ? letter : level_by_word(head);
}

// `text`: the line as printed, without leading blanks; `message`: without prefixes, in lower case.
bool starts_record(std::string_view text, std::string_view message) {
  if (message.empty()) return true;
  if (is_digit(text[0]) && text.size() > 10 && (text[4] == '-' || text[2] == ':')) return true;
  if (text[0] == '[' || text[0] == '(') return true;
  if (level_by_letter(text.substr(0, 160)) != Level::none) return true;
  return starts_with_any(message,
                         {"traceback ", "file \"", "during handling", "the above exception",
                          "terminate called", "at ", "frame #", "stack trace", "***"}) ||
         matches("error: ", message.substr(0, 60));
}

Line line_from(std::string_view output) {
  Line line;
  line.printed = without_colours(output.substr(0, kLongestLine));
  const std::string text = plain(line.printed);
  const std::string_view begin = std::string_view(text).substr(after_blanks(text, 0));
  const Prefixes prefixes = prefixes_of(text);
  const std::string message = with_single_blanks(std::string_view(text).substr(prefixes.end));
  for (std::size_t at = prefixes.end; at > 0 && text[at - 1] == ' '; --at) ++line.indent;
  line.who = prefixes.who;
  line.level = level_of(with_single_blanks(begin));
  if (line.level == Level::none) line.level = level_of(message);
  line.text = lower(message);
  line.starts_record = begin.empty() || starts_record(begin, line.text);
  return line;
}

}  // namespace

std::vector<Line> lines_of(std::string_view output) {
  std::vector<Line> lines;
  while (!output.empty()) {
    const std::size_t end = output.find_first_of("\r\n");
    Line line = line_from(output.substr(0, end));
    output = end == std::string_view::npos ? std::string_view{} : output.substr(end + 1);
    if (line.text.empty()) continue;
    if (!lines.empty() && lines.back().text == line.text) continue;
    lines.push_back(std::move(line));
  }
  mark_quotations(lines);
  return lines;
}

std::string joined(const std::vector<Line>& lines, std::size_t at, std::size_t at_most) {
  std::string text = lines[at].text;
  for (std::size_t i = at + 1; i < lines.size() && i < at + at_most; ++i) {
    if (lines[i].starts_record || lines[i].is_quoted) break;
    text += ' ';
    text += lines[i].text;
  }
  return text;
}

}  // namespace headroom::oom::detail
