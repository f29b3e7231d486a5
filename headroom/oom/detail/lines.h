// A program's output, line by line, without what hides the message: colours, progress bars that
// overwrite themselves, box drawings, prefixes of ranks and log collectors, repeated lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::oom::detail {

enum class Level {
  none,     // the line does not say
  debug,    // or info: the line reports nothing that ended a program
  warning,  // the program went on
  error,
};

struct Line {
  std::string printed;  // as printed, without colours
  // For the rules: lower case, one blank between words, straight quotes, without prefixes.
  std::string text;
  std::string who;         // the prefix of a rank or a worker, "" without one
  std::size_t indent = 0;  // blanks between the prefixes and the text
  Level level = Level::none;
  bool starts_record = false;  // does not continue the line before
  bool is_quoted = false;      // not the program's own message: see quotations.h
};

[[nodiscard]] std::vector<Line> lines_of(std::string_view output);

// The line and its wrapped continuation (`at_most` lines together), as one text for the rules. A
// word that was broken over two lines stays broken.
[[nodiscard]] std::string joined(const std::vector<Line>& lines, std::size_t at,
                                 std::size_t at_most = 4);

}  // namespace headroom::oom::detail
