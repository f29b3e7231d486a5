// What a program printed, line by line, without what hides the message: colours, progress bars that
// overwrite themselves, box drawings, prefixes of ranks and log collectors, repeats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::oom::detail {

enum class Level {
  none,     // the line does not say
  debug,    // and information: what it tells of did not end anything
  warning,  // the program went on
  error,
};

struct Line {
  std::string printed;  // as printed, without colours
  // For the rules: lower case, one blank between words, straight quotes, without prefixes.
  std::string text;
  Level level = Level::none;
  bool starts_record = false;  // it does not continue the line before
  bool is_code = false;        // a line of a program in a traceback, not of its output
};

[[nodiscard]] std::vector<Line> lines_of(std::string_view output);

// The line and what was wrapped behind it, as one text for the rules.
[[nodiscard]] std::string joined(const std::vector<Line>& lines, std::size_t at,
                                 std::size_t at_most = 4);

}  // namespace headroom::oom::detail
