// Output and its form: colours and block characters on a terminal, plain text in a pipe. Respects
// NO_COLOR, TERM=dumb and a locale without UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/wrap.h"

namespace headroom::cli {

enum class Colour { plain, bold, dim, red, green, yellow, blue, magenta, cyan };

struct Terminal {
  bool is_terminal = false;
  bool colour = false;
  bool unicode = false;
  int width = 80;
  bool has_width = false;  // a terminal's, or in COLUMNS; otherwise tables are as wide as they are

  [[nodiscard]] std::string paint(std::string_view text, Colour colour) const;

  // A bar of `width` cells, filled to `share` (0 to 1) in eighths of a cell, coloured by its level:
  // green, yellow from 75 %, red from 90 %.
  [[nodiscard]] std::string bar(double share, int width) const;

  // A bar of adjacent parts, each as wide as its share of `whole`; the rest stays empty. Shows
  // blocks in the parts' colours, or the parts' letters without colours.
  struct Part {
    char letter;
    Colour colour;
    double amount;
  };
  [[nodiscard]] std::string stacked_bar(const std::vector<Part>& parts, double whole,
                                        int width) const;
  // This part's mark in such a bar, to print beside its name.
  [[nodiscard]] std::string key_of(const Part& part) const;

  [[nodiscard]] const char* bullet() const { return unicode ? "→" : "->"; }
  [[nodiscard]] const char* warning() const { return unicode ? "▲" : "!"; }
  [[nodiscard]] const char* dash() const { return unicode ? "·" : "-"; }
};

[[nodiscard]] Terminal standard_output();
[[nodiscard]] Terminal standard_error();

// Writes to standard output at once; throws WriteError on failure (a full disk).
void print(std::string_view text);
// Writes to standard error; ignores failures.
void print_error(std::string_view text);

// Breaks a sentence into lines that fit the terminal (headroom/base/wrap.h); one line in a pipe.
[[nodiscard]] std::string in_lines(std::string_view text, std::string_view first,
                                   std::string_view next, const Terminal& terminal);

// Cuts to `width` cells, with an ellipsis; counts UTF-8 characters, not bytes, and skips colour
// codes.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t width,
                                 const Terminal& terminal);

// Pads columns to their widest entry, two blanks apart. `right` marks numbers. If the width is too
// narrow, text columns are cut, numbers never: columns without room follow below, after a repeated
// first column.
struct Column {
  std::string title;
  bool right = false;
};
[[nodiscard]] std::string table(const std::vector<Column>& columns,
                                const std::vector<std::vector<std::string>>& rows,
                                const Terminal& terminal);
// The same for titles in one text: ">GPU|name|>total", where > marks numbers.
[[nodiscard]] std::string table(std::string_view titles,
                                const std::vector<std::vector<std::string>>& rows,
                                const Terminal& terminal);

// A progress line: redrawn in place on a terminal, otherwise a new line with the time, at most
// every `quiet_s` seconds.
class ProgressLine {
 public:
  explicit ProgressLine(double quiet_s = 30);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  // `always`: also soon after the last line.
  void show(const std::string& text, bool always = false);
  void clear();

 private:
  Terminal terminal_;
  double quiet_s_;
  std::optional<double> last_s_;
  bool drawn_ = false;
};

}  // namespace headroom::cli
