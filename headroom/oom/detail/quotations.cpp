#include "headroom/oom/detail/quotations.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "headroom/base/text.h"
#include "headroom/oom/detail/amount_in_log.h"
#include "headroom/oom/detail/exceptions.h"
#include "headroom/oom/detail/pattern.h"

namespace headroom::oom::detail {
namespace {

// ---- Lines that are quotations by themselves

// Commands that were typed or echoed, comments, and program code.
bool is_code(std::string_view text) {
  if (text.starts_with("raise ") && text.find_first_of("(\"'") != std::string_view::npos)
    return true;
  const bool block = starts_with_any(text, {"if ", "with ", "while ", "for ", "else:"});
  return starts_with_any(text, {"except ",  "except:",       "elif ",   "print(",  "logger.",
                                "logging.", "warnings.warn", "log.",    "catch (", "catch(",
                                "} catch",  ">>> ",          "# ",      "// ",     "$ ",
                                "+ ",       "def ",          "import ", "from ",   "std::cerr"}) ||
         (block && text.ends_with(":")) ||
         (text.starts_with("assert ") && !matches("failed", text));
}

// "^^^^^ ~", "---^": rows that point at code.
bool is_marker_row(std::string_view text) {
  return text.find_first_not_of("^~- ") == std::string_view::npos &&
         text.find('^') != std::string_view::npos;
}

bool is_python_frame(std::string_view text) {
  return matches("file \"*\", line #", text);
}

// A stack frame, as Java, JavaScript, PyTorch, gdb, MXNet, Go and the kernel print it.
bool is_frame(std::string_view text) {
  if (text.starts_with("at ")) return text.ends_with(')') || matches(":#:#", text);
  const std::string_view word = text.substr(0, text.find(' '));
  const bool called_with_address = matches("*(0x*", word) && text.ends_with(')');
  const bool at_offset = matches("*+0x*/0x*", word);  // "out_of_memory+0x109/0x510"
  return called_with_address || at_offset ||
         starts_with_any(text, {"frame #", "[bt] (", "0x", "#0 ", "#1 ", "#2 ", "#3 ", "#4 "});
}

// "  88 | code", "----> 88 code": an excerpt of a file, with the numbers of its lines.
bool is_numbered_code(std::string_view text) {
  std::size_t at = after_number(text, 0);
  if (at > 0 && text.substr(at).starts_with(" |")) return true;
  at = text.find_first_not_of('-');
  if (at == std::string_view::npos || at == 0 || text[at] != '>') return false;
  at = text.find_first_not_of("> ", at);
  return at != std::string_view::npos && is_digit(text[at]);
}

// "logs/a.log:88: ...": a match in another program's log.
bool is_of_a_log(std::string_view text) {
  const std::string_view head = text.substr(0, text.find(' '));
  return matches_any(std::to_array<std::string_view>({"*.log:", "*.txt:", "*.out:", "*.err:"}),
                     head);
}

// "--oom-retries n ...", "-b, --batch n": an option in a help text or a command line.
bool is_option(std::string_view text) {
  const auto is_letter = [&](std::size_t at) {
    return at < text.size() && text[at] >= 'a' && text[at] <= 'z';
  };
  if (text.starts_with("--")) return is_letter(2);
  return text.starts_with('-') && is_letter(1) && text.size() > 2 &&
         (text[2] == ',' || text[2] == ' ');
}

// "1a2b3c4 fix out of memory": a commit.
bool is_of_history(std::string_view text) {
  const std::size_t end = text.find(' ');
  if (end == std::string_view::npos || end < 7 || end > 40) return false;
  const std::string_view name = text.substr(0, end);
  return name.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         name.find_first_of("0123456789") != std::string_view::npos &&
         name.find_first_of("abcdef") != std::string_view::npos;
}

// - "CUDA out of memory": an item of a list.
bool is_item(std::string_view text) {
  return text.starts_with("- \"") || text.starts_with("- '");
}

// NAME  READY  STATUS  OOMKILLED: the head of a table.
bool is_head_of_table(std::string_view printed) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < printed.size(); ++columns) {
    const std::size_t end =
        std::min({printed.find("  ", at), printed.find('\t', at), printed.size()});
    const std::string_view column = printed.substr(at, end - at);
    if (column.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_%() /-") != std::string_view::npos)
      return false;
    at = std::min(printed.find_first_not_of(" \t", end), printed.size());
  }
  return columns >= 3;
}

// ---- Tests

// "[ RUN      ] Policy.KillsOnOom": GoogleTest's marks in front of a name.
bool is_mark_of_gtest(std::string_view printed) {
  if (!printed.starts_with('[')) return false;
  const std::size_t end = printed.find(']');
  if (end != 11 && end != 9) return false;
  return starts_with_any(
      trim(printed.substr(1, end - 1)),
      {"RUN", "OK", "PASSED", "FAILED", "SKIPPED", "DISABLED", "-----", "====="});
}

// "a.py::test_b PASSED", "test_a (b.C) ... ok", "test a::b ... ok", "12/40 Test #12: ...",
// "--- FAIL: TestA (0.00s)", "not ok 4 ...": the results of test runners.
bool is_result_of_test(std::string_view text, std::string_view printed) {
  constexpr auto kResults =
      std::to_array<std::string_view>({"PASSED", "FAILED", "SKIPPED", "XFAIL", "XPASS", "ERROR"});
  if (matches("*.py::*", text) && matches_any(kResults, printed)) return true;
  constexpr auto kEnds =
      std::to_array<std::string_view>({"... ok", "... fail", "... failed", "... passed",
                                       "... error", "... skipped", "... ignored"});
  for (const std::string_view end : kEnds)
    if (text.ends_with(end) && matches("*test*", text)) return true;
  const bool named = matches_any(std::to_array<std::string_view>({"*::*", "*/*"}), text);
  if (named && starts_with_any(printed, {"PASS ", "FAIL "})) return true;
  if (text.starts_with("ok ") && text.size() > 3 && is_digit(text[3])) return true;
  return text.find("test #") != std::string_view::npos ||
         starts_with_any(text, {"--- pass:", "--- fail:", "--- skip:", "=== run", "not ok ",
                                "fail: test", "error: test_", "failed: test", "\u2713", "\u2717",
                                "\u2714", "\u2715", "\u2718", "\u25cf "});
}

// "____ test_a ____", "==== short test summary ====": pytest's headings.
bool is_heading(std::string_view text) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"*test*", "passed", "failed", "failures", "errors"});
  const bool ruled = (text.starts_with("==") && text.ends_with("==")) ||
                     (text.starts_with("__") && text.ends_with("__"));
  return ruled && matches_any(kWords, text);
}

// "1) retries on out of memory:", "scenario: ...": names of tests in Mocha, Cucumber and doctest.
bool is_name_of_test(std::string_view text) {
  const std::size_t end = after_number(text, 0);
  if (end > 0 && text.substr(end).starts_with(") ") && text.ends_with(':')) return true;
  return starts_with_any(text, {"scenario:", "feature:", "test case:"});
}

// The expected and the actual value of a test, in the words of GoogleTest and Rust.
bool is_comparison(std::string_view text) {
  return starts_with_any(text, {"expected: ", "actual: ", "which is: ", "left: ", "right: "});
}

bool is_of_tests(const Line& line) {
  const std::string_view printed = trim(line.printed);
  return is_mark_of_gtest(printed) || is_result_of_test(line.text, printed) ||
         is_name_of_test(line.text) || is_heading(line.text) || is_comparison(line.text);
}

bool shows_by_itself(const Line& line) {
  const std::string_view text = line.text;
  return is_code(text) || is_marker_row(text) || is_python_frame(text) || is_frame(text) ||
         is_numbered_code(text) || is_of_a_log(text) || is_option(text) || is_of_history(text) ||
         is_item(text) || is_head_of_table(trim(line.printed)) || is_of_tests(line);
}

// ---- Lines that are quotations by their position

bool speaks_of_an_error(const Line& line) {
  return begins_with_raised(line.text) || starts_with_any(line.text, {"error", "fatal"});
}

// Python indents the code of a frame deeper than the frame. Where a log collector lost the blanks,
// only the next line counts.
void mark_code_of_frames(std::vector<Line>& lines) {
  for (std::size_t frame = 0; frame < lines.size(); ++frame) {
    if (!is_python_frame(lines[frame].text)) continue;
    std::size_t i = frame + 1;
    while (i < lines.size() && lines[i].indent > lines[frame].indent) lines[i++].is_quoted = true;
    const bool is_lost = i == frame + 1 && i < lines.size() && matches(", in ", lines[frame].text);
    if (is_lost && !speaks_of_an_error(lines[i]) && raised_in(lines[i].text).empty())
      lines[i].is_quoted = true;
  }
}

bool has_number_in_front(std::string_view text) {
  const std::size_t end = after_number(text, 0);
  return end > 0 && (end == text.size() || text[end] == ' ');
}

// IPython shows the lines around the one that "----> 3" points at.
void mark_excerpts(std::vector<Line>& lines) {
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (!lines[at].text.starts_with('-') || !is_numbered_code(lines[at].text)) continue;
    for (std::size_t i = at; i > 0 && has_number_in_front(lines[i - 1].text); --i)
      lines[i - 1].is_quoted = true;
    for (std::size_t i = at + 1; i < lines.size() && has_number_in_front(lines[i].text); ++i)
      lines[i].is_quoted = true;
  }
}

// Rich draws a box around a traceback; the message stands below it.
void mark_boxes(std::vector<Line>& lines) {
  bool in_traceback = false;
  for (Line& line : lines) {
    const std::string_view printed = trim(line.printed);
    const bool in_box = printed.starts_with("\u2502") || printed.starts_with("\u2503");
    if (printed.starts_with("\u256d")) in_traceback = matches("traceback", line.text);
    if (printed.starts_with("\u2570")) in_traceback = false;
    const bool place = has_number_in_front(line.text) || line.text.starts_with("\u2771") ||
                       matches(":# in ", line.text);
    if (in_traceback || (in_box && place)) line.is_quoted = true;
  }
}

// "usage: ..." and the indented lines below it; the same for "options:".
void mark_help(std::vector<Line>& lines) {
  for (std::size_t head = 0; head < lines.size(); ++head) {
    if (!starts_with_any(lines[head].text, {"usage:", "options:", "optional arguments:", "flags:",
                                            "positional arguments:", "commands:", "arguments:"}))
      continue;
    lines[head].is_quoted = true;
    for (std::size_t i = head + 1; i < lines.size() && lines[i].indent > lines[head].indent; ++i)
      lines[i].is_quoted = true;
  }
}

// "2  cudaErrorMemoryAllocation" next to others of its kind: a list that explains numbers.
bool is_numbered_name(std::string_view text) {
  const std::size_t end = after_number(text, 0);
  if (end == 0 || end >= text.size() || text[end] != ' ') return false;
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(end) + 1, text.end(),
                     is_word_character);
}

// A heading such as "retry_on:" with items below it. Items of "errors:" have happened; an item with
// a colon is a figure.
bool opens_list(std::string_view text) {
  constexpr auto kFailures =
      std::to_array<std::string_view>({"*err*", "*exception*", "*fail*", "*caus*"});
  return text.ends_with(':') && !matches_any(kFailures, text);
}

void mark_lists(std::vector<Line>& lines) {
  bool in_list = false;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::string_view text = lines[i].text;
    if (is_numbered_name(text) && is_numbered_name(lines[i - 1].text))
      lines[i].is_quoted = lines[i - 1].is_quoted = true;
    const bool item = text.starts_with("- ") && text.find(':') == std::string_view::npos;
    in_list = item && (in_list || opens_list(lines[i - 1].text));
    if (in_list) lines[i].is_quoted = true;
  }
}

// pytest puts E before each line of a message: the first has the raised exception, the others
// compare.
void mark_details_of_tests(std::vector<Line>& lines) {
  const auto is_message = [](const Line& line) { return trim(line.printed).starts_with("E   "); };
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (is_message(lines[i]) && is_message(lines[i - 1])) lines[i].is_quoted = true;
}

}  // namespace

void mark_quotations(std::vector<Line>& lines) {
  for (Line& line : lines) line.is_quoted = shows_by_itself(line);
  mark_code_of_frames(lines);
  mark_excerpts(lines);
  mark_boxes(lines);
  mark_help(lines);
  mark_lists(lines);
  mark_details_of_tests(lines);
}

}  // namespace headroom::oom::detail
