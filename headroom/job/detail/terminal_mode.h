// Puts our terminal into raw mode: every byte passes as it is typed, without echo and without
// signals. leave(), the destructor, exit(), abort() and faults restore its old modes.
//
// Only one may exist, because fault handlers are global.
#pragma once

#include <termios.h>

namespace headroom::job {

class RawTerminal {
 public:
  explicit RawTerminal(int terminal);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  void enter();
  void leave();
  // After an unexpected stop another program may have changed the modes: renew() sets raw mode
  // again; forget() restores nothing, because the terminal is not ours any more.
  void renew();
  void forget();
  [[nodiscard]] bool is_raw() const { return raw_; }

 private:
  int terminal_;
  bool raw_ = false;
  termios before_{};
};

}  // namespace headroom::job
