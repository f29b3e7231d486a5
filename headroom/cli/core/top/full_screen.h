// The terminal as a full screen, through ncurses. While this object lives the terminal is ours; its
// destructor gives it back as it was, after an exception, too.
//
// Construct it when SIGTSTP and SIGWINCH are blocked in all threads (SignalsHeld): what ncurses
// would do in their handlers happens in suspend() and resize(), at a time of our choice. There is
// one at a time, used by one thread.
#pragma once

#include <optional>

#include "headroom/cli/core/top/controls.h"
#include "headroom/cli/core/top/screen.h"

namespace headroom::cli {

class FullScreen {
 public:
  // Throws UnavailableError if the system knows no terminal such as TERM.
  explicit FullScreen(const Terminal& terminal);
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // With the present width, and the colours that the terminal has.
  [[nodiscard]] const Terminal& terminal() const { return terminal_; }
  [[nodiscard]] int height() const;

  // Sends only the cells that changed.
  void show(const Screen& screen);
  // The next key that was pressed, without waiting; std::nullopt if there is none.
  [[nodiscard]] std::optional<Key> next_key();

  // Takes the size that the terminal has now.
  void resize();
  // Gives the terminal back and stops the process; returns when it is continued.
  void suspend();
  // The next show() sends all cells.
  void forget();

 private:
  Terminal terminal_;
  Screen shown_;
  void* curses_ = nullptr;  // a SCREEN of ncurses, whose header has too many names to include here
};

// Whether a screen can be drawn at all: both ends are terminals, and not dumb ones.
[[nodiscard]] bool can_draw();

// Standard output, with the characters that ncurses can show there: ASCII without UTF-8, and on the
// Linux console, whose font lacks most block characters. Sets the locale: call it before there are
// other threads.
[[nodiscard]] Terminal screen_terminal();

}  // namespace headroom::cli
