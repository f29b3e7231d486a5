// Our terminal while its keys belong to somebody else: every byte passes as it is typed, nothing is
// echoed, no key is a signal. Its old modes come back with leave(), with the end of this object,
// and also when the process ends by exit(), abort() or a fault.
//
// One at a time: a fault has no owner.
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
  // After a stop that we did not see coming the modes are somebody else's: raw again, or, where
  // the terminal is not ours any more, nothing to put right.
  void renew();
  void forget();
  [[nodiscard]] bool is_raw() const { return raw_; }

 private:
  int terminal_;
  bool raw_ = false;
  termios before_{};
};

}  // namespace headroom::job
