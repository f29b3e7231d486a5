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
  std::string who;         // the prefix of a rank or a worker, "" where none is printed
  std::size_t indent = 0;  // blanks between the prefixes and the text
  Level level = Level::none;
  bool starts_record = false;  // it does not continue the line before
  bool is_quoted = false;      // no message of the program's own: see quotations.h
};

[[nodiscard]] std::vector<Line> lines_of(std::string_view output);

// The line and what was wrapped behind it, as one text for the rules. A word that was broken over
// two lines stays broken.
[[nodiscard]] std::string joined(const std::vector<Line>& lines, std::size_t at,
                                 std::size_t at_most = 4);

}  // namespace headroom::oom::detail
