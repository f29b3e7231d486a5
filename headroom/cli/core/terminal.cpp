#include "headroom/cli/core/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/base/time.h"

namespace headroom::cli {
namespace {

Terminal describe(int descriptor) {
  Terminal terminal;
  terminal.is_terminal = ::isatty(descriptor) == 1;
  const bool dumb = environment("TERM").value_or("dumb") == "dumb";
  const bool no_colour = !environment("NO_COLOR").value_or("").empty();
  terminal.colour = terminal.is_terminal && !dumb && !no_colour;
  // The first of these that is set and not empty decides (locale(7)).
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = lower(environment(name).value_or(""));
    if (locale.empty()) continue;
    terminal.unicode =
        locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
    break;
  }
  winsize size{};
  if (terminal.is_terminal && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
    terminal.has_width = true;
  } else if (const auto columns = to_integer(environment("COLUMNS").value_or(""));
             columns && *columns > 0) {
    terminal.width = static_cast<int>(std::min<long long>(*columns, 1000));
    terminal.has_width = true;
  }
  return terminal;
}

// By Colour.
constexpr const char* kEscapes[] = {"",         "\033[1m",  "\033[2m",  "\033[31m", "\033[32m",
                                    "\033[33m", "\033[34m", "\033[35m", "\033[36m"};

double now_s() {
  return Seconds(Clock::now().time_since_epoch()).count();
}

// A command with a pseudo-terminal puts the real terminal into raw mode, where a line feed alone
// does not return to the first column.
std::string with_returns(std::string_view text) {
  termios modes{};
  const bool is_raw = ::tcgetattr(STDERR_FILENO, &modes) == 0 && (modes.c_oflag & OPOST) == 0;
  std::string out;
  for (const char c : text) out += c == '\n' && is_raw ? std::string("\r\n") : std::string(1, c);
  return out;
}

}  // namespace

std::string Terminal::paint(std::string_view text, Colour how) const {
  if (!colour || how == Colour::plain || text.empty()) return std::string(text);
  return kEscapes[static_cast<int>(how)] + std::string(text) + "\033[0m";
}

std::string Terminal::bar(double share, int cells_wide) const {
  static constexpr std::array<const char*, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = std::clamp(share, 0.0, 1.0) * cells_wide;
  // A share above 0 shows at least one eighth; a share below 1 never looks full.
  int eighths = static_cast<int>(std::lround(filled * 8));
  if (share > 0) eighths = std::max(eighths, 1);
  if (share < 1) eighths = std::min(eighths, cells_wide * 8 - 1);
  const int whole = unicode ? eighths / 8 : (eighths + 7) / 8;
  const int part = unicode ? eighths % 8 : 0;
  std::string used, rest;
  for (int i = 0; i < whole; ++i) used += unicode ? "█" : "#";
  used += kEighths.at(static_cast<std::size_t>(part));
  for (int i = whole + (part > 0 ? 1 : 0); i < cells_wide; ++i) rest += unicode ? "░" : ".";
  const Colour level = share >= 0.9 ? Colour::red : share >= 0.75 ? Colour::yellow : Colour::green;
  return paint(used, level) + paint(rest, Colour::dim);
}

std::string Terminal::key_of(const Part& part) const {
  return colour && unicode ? paint("█", part.colour)
                           : paint(std::string(1, part.letter), part.colour);
}

std::string Terminal::stacked_bar(const std::vector<Part>& parts, double whole,
                                  int cells_wide) const {
  std::string bar;
  double sum = 0;
  int cells_done = 0;
  for (const Part& part : parts) {
    sum += part.amount;
    // A part above 0 gets at least one cell, as long as there is room.
    const int least = std::min(cells_wide, cells_done + (part.amount > 0 ? 1 : 0));
    const int end =
        std::clamp(static_cast<int>(std::lround(sum / whole * cells_wide)), least, cells_wide);
    std::string cells_of_part;
    for (; cells_done < end; ++cells_done)
      cells_of_part += colour && unicode ? "█" : std::string(1, part.letter);
    bar += paint(cells_of_part, part.colour);
  }
  std::string rest;
  for (; cells_done < cells_wide; ++cells_done) rest += unicode ? "░" : ".";
  return bar + paint(rest, Colour::dim);
}

Terminal standard_output() {
  return describe(STDOUT_FILENO);
}
Terminal standard_error() {
  return describe(STDERR_FILENO);
}

void print(std::string_view text) {
  write_all(STDOUT_FILENO, text, "standard output");
}

void print_error(std::string_view text) {
  const std::string complete = with_returns(text);
  std::string_view left = complete;
  while (!left.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, left.data(), left.size());
    if (written <= 0) return;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string in_lines(std::string_view text, std::string_view first, std::string_view next,
                     const Terminal& terminal) {
  constexpr int kEndless = 1'000'000;
  return wrapped(text, first, next, terminal.has_width ? terminal.width - 1 : kEndless);
}

std::string fitted(std::string_view text, std::size_t width, const Terminal& terminal) {
  if (cells(text) <= width) return std::string(text);
  const std::string_view dots = terminal.unicode ? "…" : "...";
  if (width <= cells(dots)) return std::string(width, '.');
  std::size_t left = width - cells(dots), end = 0;
  bool coloured = false;
  while (end < text.size()) {
    const std::size_t colour = colour_length(text.substr(end));
    coloured = coloured || colour > 0;
    if (colour == 0 && begins_character(text[end]) && left-- == 0) break;
    end += std::max<std::size_t>(colour, 1);
  }
  return std::string(text.substr(0, end)) + std::string(dots) + (coloured ? "\033[0m" : "");
}

namespace {

// Narrows the widest text columns, never numbers, until the line fits.
void narrow(std::vector<std::size_t>& widths, const std::vector<Column>& columns,
            std::size_t room) {
  constexpr std::size_t kNarrowest = 12;
  std::size_t line = 2 * (widths.size() - 1);
  for (const std::size_t width : widths) line += width;
  for (; line > room; --line) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (!columns[i].right && widths[i] > kNarrowest && (!widest || widths[i] > *widest))
        widest = &widths[i];
    if (!widest) return;
    --*widest;
  }
}

// The columns of each part of a table that is too wide: the first one, and others as far as there
// is room.
std::vector<std::vector<std::size_t>> parts_of(const std::vector<std::size_t>& widths,
                                               std::size_t room) {
  std::vector<std::vector<std::size_t>> parts{{0}};
  std::size_t line = widths[0];
  for (std::size_t i = 1; i < widths.size(); ++i) {
    if (line + 2 + widths[i] > room && parts.back().size() > 1) {
      parts.push_back({0});
      line = widths[0];
    }
    parts.back().push_back(i);
    line += 2 + widths[i];
  }
  return parts;
}

}  // namespace

std::string table(const std::vector<Column>& columns,
                  const std::vector<std::vector<std::string>>& rows, const Terminal& terminal) {
  std::vector<std::size_t> widths;
  for (const Column& column : columns) widths.push_back(cells(column.title));
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], cells(row[i]));

  constexpr std::size_t kEndless = 1'000'000;
  const auto room = terminal.has_width ? static_cast<std::size_t>(terminal.width) : kEndless;
  narrow(widths, columns, room);

  const auto line = [&](const std::vector<std::size_t>& part, const auto& text_of) {
    std::string out;
    for (const std::size_t i : part) {
      const std::string text = fitted(text_of(i), widths[i], terminal);
      const std::string padding(widths[i] - cells(text), ' ');
      out += (i == 0 ? "" : "  ") + (columns[i].right ? padding + text : text + padding);
    }
    while (out.ends_with(' ')) out.pop_back();
    return out;
  };
  std::string out;
  for (const auto& part : parts_of(widths, room)) {
    const std::string titles = line(part, [&](std::size_t i) { return columns[i].title; });
    out += (out.empty() ? "" : "\n") + terminal.paint(titles, Colour::bold) + "\n";
    for (const auto& row : rows) out += line(part, [&](std::size_t i) { return row[i]; }) + "\n";
  }
  return out;
}

std::string table(std::string_view titles, const std::vector<std::vector<std::string>>& rows,
                  const Terminal& terminal) {
  std::vector<Column> columns;
  for (const std::string_view title : split(titles, '|')) {
    const bool right = title.starts_with('>');
    columns.push_back({std::string(title.substr(right ? 1 : 0)), right});
  }
  return table(columns, rows, terminal);
}

ProgressLine::ProgressLine(double quiet_s) : terminal_(standard_error()), quiet_s_(quiet_s) {}

ProgressLine::~ProgressLine() {
  clear();
}

void ProgressLine::show(const std::string& text, bool always) {
  if (terminal_.is_terminal) {
    terminal_ = standard_error();  // its window may have another size now
    // Leaves 3 cells free: the terminal appends "^C", and clear() cannot reach a second line.
    const int width = std::max(1, terminal_.width - 3);
    print_error("\r\033[K" + fitted(text, static_cast<std::size_t>(width), terminal_));
    drawn_ = true;
    return;
  }
  const double now = now_s();
  if (!always && last_s_ && now - *last_s_ < quiet_s_) return;
  last_s_ = now;
  print_error(local_timestamp(std::chrono::system_clock::now()) + " " + text + "\n");
}

void ProgressLine::clear() {
  if (drawn_) print_error("\r\033[K");
  drawn_ = false;
}

}  // namespace headroom::cli
