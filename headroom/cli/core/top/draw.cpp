#include "headroom/cli/core/top/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "headroom/base/text.h"
#include "headroom/cli/core/view/machine_view.h"
#include "headroom/lease/lease_text.h"

namespace headroom::cli {
namespace {

std::string clock_text(WallTime when) {
  return local_timestamp(when).substr(11, 8);
}

Line title_line(const Picture& picture, const Canvas& canvas) {
  Terminal plain = canvas.terminal;
  plain.is_terminal = plain.has_width = plain.colour = false;  // as one line
  gpu::Machine machine = picture.machine;
  constexpr int kWithDriver = 92;  // on a narrower screen the free memory is worth more
  if (plain.width < kWithDriver) machine.driver.reset(), machine.cuda_driver.reset();
  const std::string title(trim(machine_title(machine, plain)));
  const std::string time = " " + clock_text(picture.wall);
  const int room = canvas.terminal.width - static_cast<int>(time.size());
  return {{in_cells(title, room, plain), Colour::bold}, {time, Colour::dim}};
}

// "2. PID 4242 alice needs 20.00 GiB, waits 3m20s: best is GPU 0 with ..."
Line waiting_line(const machine::WaitingRow& row, const Picture& picture,
                  const Terminal& terminal) {
  const lease::Waiter& waiter = row.waiter;
  std::string text = row.position ? std::to_string(*row.position) + "." : "-";
  if (row.pid) text += " PID " + std::to_string(*row.pid);
  text += fmt::format(" {} needs {}", lease::user_of(waiter), to_string(waiter.wish.need));
  if (waiter.wish.count > 1) text += " x " + std::to_string(waiter.wish.count);
  text += fmt::format(", waits {}: {}", brief_age(picture.wall - waiter.since), row.why);
  return {{" "}, {showable(text, terminal)}};
}

// At most this many lines, the first of them a title.
Screen queue_lines(const Picture& picture, const Canvas& canvas, std::size_t most) {
  const std::size_t count = picture.waiting.size();
  if (count == 0 || most < 2) return {};
  const std::string more =
      count > most - 1 ? fmt::format(", the first {} of them (headroom queue)", most - 1) : "";
  const std::string title =
      (count == 1 ? "1 job waits" : fmt::format("{} jobs wait", count)) + more;
  Screen lines{{{title, Colour::bold}}};
  for (std::size_t i = 0; i < std::min(count, most - 1); ++i)
    lines.push_back(waiting_line(picture.waiting[i], picture, canvas.terminal));
  return lines;
}

// ---- The line above the keys: a question, else an answer, else advice ----

std::string question_about(const ProcessRow& row) {
  return fmt::format("End PID {} ({}, {})? Type yes and Enter: ", row.process->pid, row.user,
                     row.used ? brief(*row.used) : "? bytes");
}

// At most two lines on a screen.
Screen advice_lines(const std::string& advice, const Canvas& canvas) {
  const Terminal& terminal = canvas.terminal;
  if (advice.empty()) return {};
  const std::string mark = std::string(terminal.bullet()) + " ";
  const std::string blanks(cells(mark), ' ');
  const int width = canvas.is_endless() ? 1'000'000 : terminal.width;
  const std::string text = wrapped(showable(advice, terminal), "", blanks, width - 3);
  Screen lines;
  for (const std::string_view line : split(trim(text), '\n'))
    if (lines.size() < 2) lines.push_back({{std::string(line)}});
  lines[0].insert(lines[0].begin(), {mark, Colour::blue});
  return lines;
}

Screen talk_lines(const Picture& picture, const Controls& controls, const Canvas& canvas) {
  const Terminal& terminal = canvas.terminal;
  if (controls.typing == Controls::Typing::filter)
    return {{{"filter: ", Colour::bold}, {showable(controls.filter, terminal)}, {" ", {}, true}}};
  if (controls.typing == Controls::Typing::yes)
    return {{{showable(question_about(*controls.to_end), terminal), Colour::yellow},
             {showable(controls.typed, terminal)},
             {" ", {}, true}}};
  if (!controls.message.empty()) return {{{showable(controls.message, terminal), Colour::yellow}}};
  Screen lines = advice_lines(picture.advice, canvas);
  if (lines.empty() && !canvas.is_endless()) lines.push_back({});  // where messages appear
  return lines;
}

Line key_line(const Controls& controls, const Canvas& canvas) {
  std::string text = fmt::format(" q quit  h help  s sort: {}{}  / filter  e end  Enter details",
                                 to_string(controls.sort_by), controls.is_reversed ? " up" : "");
  if (controls.typing == Controls::Typing::filter)
    text = " type words; Enter keeps the filter, Esc clears it";
  else if (controls.typing == Controls::Typing::yes)
    text = " yes and Enter ends it, Esc leaves it alone";
  else if (!controls.filter.empty())
    text = fmt::format(" Esc clears \"{}\" {}", controls.filter, text);
  if (controls.typing == Controls::Typing::nothing && canvas.terminal.width >= 90)
    text += controls.is_on_cards ? "  Tab processes" : "  Tab GPUs";
  return reversed({{showable(text, canvas.terminal)}}, canvas.terminal.width, canvas.terminal);
}

Screen warning_lines(const Picture& picture, const Canvas& canvas, std::size_t most) {
  Screen lines;
  for (std::size_t i = 0; i < std::min(most, picture.warnings.size()); ++i)
    lines.push_back({{std::string(canvas.terminal.warning()) + " ", Colour::yellow},
                     {showable(picture.warnings[i], canvas.terminal)}});
  return lines;
}

// ---- The two panes ----

// "1-7/16": which rows are shown, if not all are.
std::string with_numbers(std::string titles, const std::string& numbers,
                         const std::optional<int>& at, const Terminal& terminal) {
  if (at) return titles.replace(static_cast<std::size_t>(*at), numbers.size(), numbers);
  const int left = terminal.width - static_cast<int>(numbers.size()) - 1;
  return in_cells(titles, left, terminal) + " " + numbers;
}

// The titles and `room` - 1 lines around the selected one.
void add_pane(Screen& screen, Pane pane, std::size_t room, const Terminal& terminal) {
  const std::size_t count = pane.lines.size(), shown = std::min(count, room > 0 ? room - 1 : 0);
  const std::size_t middle = pane.selected < shown / 2 ? 0 : pane.selected - shown / 2;
  const std::size_t first = std::min(middle, count - shown);
  if (shown < count && shown > 0) {
    const std::string numbers =
        fmt::format("{}-{}/{}", pane.row_of[first] + 1, pane.row_of[first + shown - 1] + 1,
                    pane.row_of.back() + 1);
    pane.titles = with_numbers(std::move(pane.titles), numbers, pane.numbers_at, terminal);
  }
  screen.push_back({{std::move(pane.titles), Colour::bold}});
  for (std::size_t i = first; i < first + shown; ++i) screen.push_back(std::move(pane.lines[i]));
}

// Half of the room each, or more if the other needs less.
std::size_t room_for_cards(std::size_t room, std::size_t cards, std::size_t processes) {
  const std::size_t half = room / 2, rest = room > processes ? room - processes : 0;
  return std::min(cards, std::max(half, rest));
}

std::string why_no_cards(const gpu::Machine& machine) {
  if (!machine.why_no_driver.empty()) return machine.why_no_driver;
  return machine.driver || machine.simulated ? "no GPUs" : "waiting for the GPU driver";
}

void add_panes(Screen& screen, const Picture& picture, const Controls& controls,
               const Canvas& canvas, std::size_t room) {
  Pane cards = card_pane(picture, controls, canvas);
  Pane processes = process_pane(picture, controls, canvas);
  if (cards.lines.empty()) {
    screen.push_back({{showable(why_no_cards(picture.machine), canvas.terminal), Colour::bold}});
    if (!picture.machine.why_no_driver.empty())
      screen.push_back({{"`headroom doctor` explains what to do"}});
    return;
  }
  // A title each, and a blank line between them if there is room.
  const std::size_t need = cards.lines.size() + processes.lines.size() + 2;
  const bool has_gap = canvas.is_endless() || room > need;
  if (canvas.is_endless()) room = need + 1;
  const std::size_t both = room - (has_gap ? 1 : 0);
  const std::size_t for_cards =
      room_for_cards(both, cards.lines.size() + 1, processes.lines.size() + 1);
  add_pane(screen, std::move(cards), for_cards, canvas.terminal);
  if (has_gap) screen.push_back({});
  if (processes.lines.empty()) {
    const char* none = controls.filter.empty() ? "no processes" : "no process matches the filter";
    processes.lines.push_back({{none, Colour::dim}});
    processes.row_of.push_back(0);
  }
  add_pane(screen, std::move(processes), both - for_cards, canvas.terminal);
}

Screen machine_page(const Picture& picture, const Controls& controls, const Canvas& canvas) {
  const std::size_t kAll = 1'000'000;
  const bool is_low = !canvas.is_endless() && canvas.height < 28;
  Screen bottom = queue_lines(picture, canvas, canvas.is_endless() ? kAll : is_low ? 3 : 5);
  for (Line& line : warning_lines(picture, canvas, canvas.is_endless() ? kAll : is_low ? 1 : 3))
    bottom.push_back(std::move(line));
  for (Line& line : talk_lines(picture, controls, canvas)) bottom.push_back(std::move(line));
  if (!canvas.is_endless()) bottom.push_back(key_line(controls, canvas));

  Screen screen{title_line(picture, canvas)};
  const std::size_t taken = screen.size() + bottom.size(),
                    height = static_cast<std::size_t>(canvas.height);
  const std::size_t room = height > taken + 4 ? height - taken : 4;
  add_panes(screen, picture, controls, canvas, room);
  while (screen.size() + bottom.size() < height) screen.push_back({});
  for (Line& line : bottom) screen.push_back(std::move(line));
  return screen;
}

}  // namespace

Screen draw(const Picture& picture, const Controls& controls, const Canvas& canvas) {
  Screen screen = controls.page == Controls::Page::help ? help_page(canvas)
                  : controls.page == Controls::Page::details
                      ? details_page(picture, controls, canvas)
                      : machine_page(picture, controls, canvas);
  if (controls.page == Controls::Page::details && screen.size() > 1)
    screen[screen.size() - 2] = talk_lines({}, controls, canvas).front();
  if (canvas.is_endless()) return screen;
  for (Line& line : screen) line = fitted(std::move(line), canvas.terminal.width, canvas.terminal);
  return screen;
}

}  // namespace headroom::cli
