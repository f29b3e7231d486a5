#define NCURSES_NOMACROS  // names such as `move` and `clear` stay functions
#include "headroom/cli/core/top/full_screen.h"

#include <curses.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom::cli {
namespace {

// Colour::red and those after it, in their order.
constexpr std::array<short, 6> kColours{COLOR_RED,  COLOR_GREEN,   COLOR_YELLOW,
                                        COLOR_BLUE, COLOR_MAGENTA, COLOR_CYAN};

// ncurses writes UTF-8 only in a locale that has it.
bool takes_utf8() {
  const auto has_it = [] { return MB_CUR_MAX > 1; };
  if (std::setlocale(LC_CTYPE, "") != nullptr && has_it()) return true;
  return std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr && has_it();
}

// newterm() takes these signals; its handlers are not safe among threads.
class SignalActions {
 public:
  SignalActions() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &actions_[i]);
  }
  ~SignalActions() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_[i], nullptr);
  }
  SignalActions(const SignalActions&) = delete;
  SignalActions& operator=(const SignalActions&) = delete;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
  std::array<struct sigaction, kSignals.size()> actions_{};
};

void begin_colours() {
  if (start_color() == ERR) return;
  use_default_colors();
  for (std::size_t i = 0; i < kColours.size(); ++i)
    init_pair(static_cast<short>(i + 1), kColours[i], -1);
}

attr_t attributes_of(const Span& span) {
  attr_t attributes = A_NORMAL;
  if (span.colour == Colour::bold) attributes |= A_BOLD;
  if (span.colour == Colour::dim) attributes |= A_DIM;
  if (span.reverse) attributes |= A_REVERSE;
  return attributes;
}

short pair_of(const Span& span, bool has_colour) {
  const int number = static_cast<int>(span.colour) - static_cast<int>(Colour::red);
  return has_colour && number >= 0 ? static_cast<short>(number + 1) : short{0};
}

std::string utf8(wint_t code) {
  std::string text(MB_CUR_MAX, '\0');
  std::mbstate_t state{};
  const std::size_t size = std::wcrtomb(text.data(), static_cast<wchar_t>(code), &state);
  text.resize(size == static_cast<std::size_t>(-1) ? 0 : size);
  return text;
}

std::optional<Key> special_key(wint_t code) {
  switch (code) {
    case KEY_UP:
      return Key{Key::Kind::up};
    case KEY_DOWN:
      return Key{Key::Kind::down};
    case KEY_PPAGE:
      return Key{Key::Kind::page_up};
    case KEY_NPAGE:
      return Key{Key::Kind::page_down};
    case KEY_HOME:
      return Key{Key::Kind::home};
    case KEY_END:
      return Key{Key::Kind::end};
    case KEY_BACKSPACE:
      return Key{Key::Kind::backspace};
    case KEY_ENTER:
      return Key{Key::Kind::enter};
    default:
      return {};
  }
}

std::optional<Key> character_key(wint_t code) {
  constexpr wint_t kCtrlL = 12, kEscape = 27, kDelete = 127;
  if (code == '\n' || code == '\r') return Key{Key::Kind::enter};
  if (code == '\t') return Key{Key::Kind::tab};
  if (code == kEscape) return Key{Key::Kind::escape};
  if (code == kDelete || code == '\b') return Key{Key::Kind::backspace};
  if (code == kCtrlL) return Key{Key::Kind::redraw};
  if (code < ' ') return {};
  return Key{Key::Kind::text, utf8(code)};
}

}  // namespace

FullScreen::FullScreen(const Terminal& terminal) : terminal_(terminal) {
  {
    const SignalActions kept;
    curses_ = newterm(nullptr, stdout, stdin);
  }
  if (curses_ == nullptr)
    throw UnavailableError(expectation("TERM", "a terminal that the system's terminfo knows",
                                       environment("TERM").value_or(""),
                                       "TERM=xterm, or headroom top --once"));
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);  // milliseconds in which the rest of a key's sequence comes
  curs_set(0);
  if (terminal_.colour) begin_colours();
  terminal_.colour = terminal_.colour && has_colors();
  terminal_.width = getmaxx(stdscr);
}

FullScreen::~FullScreen() {
  endwin();
  delscreen(static_cast<SCREEN*>(curses_));
}

int FullScreen::height() const {
  return getmaxy(stdscr);
}

void FullScreen::show(const Screen& screen) {
  const auto rows = static_cast<std::size_t>(std::max(1, height()));
  shown_.resize(rows);
  for (std::size_t y = 0; y < rows; ++y) {
    const Line line = y < screen.size() ? screen[y] : Line{};
    if (line == shown_[y]) continue;
    wmove(stdscr, static_cast<int>(y), 0);
    wclrtoeol(stdscr);
    for (const Span& span : line) {
      wattr_set(stdscr, attributes_of(span), pair_of(span, terminal_.colour), nullptr);
      waddnstr(stdscr, span.text.c_str(), -1);
    }
    wattr_set(stdscr, A_NORMAL, 0, nullptr);
    shown_[y] = line;
  }
  wrefresh(stdscr);
}

std::optional<Key> FullScreen::next_key() {
  wint_t code = 0;
  while (true) {
    const int kind = wget_wch(stdscr, &code);
    if (kind == ERR) return {};
    auto key = kind == KEY_CODE_YES ? special_key(code) : character_key(code);
    if (key) return key;
  }
}

void FullScreen::resize() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    resizeterm(size.ws_row, size.ws_col);
  terminal_.width = getmaxx(stdscr);
  forget();
}

void FullScreen::suspend() {
  endwin();
  // As the signal does without a handler: a process without a shell that could continue it is not
  // stopped.
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, &before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  wrefresh(stdscr);  // takes the terminal again
  resize();
}

void FullScreen::forget() {
  shown_.clear();
  werase(stdscr);
  clearok(stdscr, TRUE);
}

Terminal screen_terminal() {
  Terminal terminal = standard_output();
  terminal.unicode = terminal.unicode && takes_utf8() && environment("TERM") != "linux";
  return terminal;
}

bool can_draw() {
  const std::string type = environment("TERM").value_or("dumb");
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && type != "dumb" &&
         !type.empty();
}

}  // namespace headroom::cli
