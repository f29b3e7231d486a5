// Where output goes and how it looks there: colours and lines of blocks on a terminal, plain text
// in a pipe. NO_COLOR, TERM=dumb and a locale without UTF-8 are respected.
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

  [[nodiscard]] std::string paint(std::string_view text, Colour colour) const;

  // A bar of `width` cells, filled to `share` (0 to 1) in eighths of a cell, coloured by how full
  // it is: green, yellow from 75 %, red from 90 %.
  [[nodiscard]] std::string bar(double share, int width) const;

  // A bar of parts beside each other, each as wide as its share of `whole`; what is left stays
  // empty. Blocks in the parts' colours, or their letters where there are no colours.
  struct Part {
    char letter;
    Colour colour;
    double amount;
  };
  [[nodiscard]] std::string stacked_bar(const std::vector<Part>& parts, double whole,
                                        int width) const;
  // How such a bar shows this part: the key beside its name.
  [[nodiscard]] std::string key_of(const Part& part) const;

  [[nodiscard]] const char* bullet() const { return unicode ? "→" : "->"; }
  [[nodiscard]] const char* warning() const { return unicode ? "▲" : "!"; }
  [[nodiscard]] const char* dash() const { return unicode ? "·" : "-"; }
};

[[nodiscard]] Terminal standard_output();
[[nodiscard]] Terminal standard_error();

// Writes to standard output at once; throws WriteError if that is not possible (a full disk).
void print(std::string_view text);
// Writes to standard error; what cannot be written there is lost.
void print_error(std::string_view text);

// A sentence as lines that a terminal has room for (headroom/base/wrap.h); in a pipe it is one.
[[nodiscard]] std::string in_lines(std::string_view text, std::string_view first,
                                   std::string_view next, const Terminal& terminal);

// Cuts to `width` cells, with an ellipsis; counts UTF-8 characters, not bytes, and no colours.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t width,
                                 const Terminal& terminal);

// Columns padded to their widest entry, two blanks between them. `right` marks numbers. On a
// terminal that is too narrow texts are cut, numbers never.
struct Column {
  std::string title;
  bool right = false;
};
[[nodiscard]] std::string table(const std::vector<Column>& columns,
                                const std::vector<std::vector<std::string>>& rows,
                                const Terminal& terminal);

// A line that says how far something is: redrawn in place on a terminal, otherwise a new line with
// the time at most every `quiet_s` seconds.
class ProgressLine {
 public:
  explicit ProgressLine(double quiet_s = 30);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);
  void clear();

 private:
  Terminal terminal_;
  double quiet_s_;
  std::optional<double> last_s_;
  bool drawn_ = false;
};

}  // namespace headroom::cli
