// Standard input that Ctrl-C can end: while it exists, file 0 is a pipe which a thread fills from
// the real one. Once the token is stopped the pipe ends, however long nothing comes; a plain read()
// would wait on, because Interrupt keeps the signal from it.
//
// The pipe ends as well when the real one cannot be read any further (a disk, a terminal that went
// away). That must not look like the end of what was sent: look at the token, and check().
//
// Whoever reads from file 0 must have stopped before this ends.
#pragma once

#include <atomic>
#include <functional>
#include <stop_token>
#include <thread>

namespace headroom::cli {

class InterruptibleInput {
 public:
  explicit InterruptibleInput(const std::stop_token& stop);
  ~InterruptibleInput();
  InterruptibleInput(const InterruptibleInput&) = delete;
  InterruptibleInput& operator=(const InterruptibleInput&) = delete;

  // Stopped with the given one, and before the pipe ends too early.
  [[nodiscard]] std::stop_token token() const { return ended_.get_token(); }
  // Throws InputError if the real input could not be read to its end.
  void check() const;

 private:
  void fill(int to, const std::stop_token& unwanted);
  void give_up(int error);

  std::stop_source ended_;
  std::stop_callback<std::function<void()>> with_given_;
  std::atomic<int> error_{0};
  int real_ = -1;  // -1: could not be made; file 0 is as it was
  std::jthread filler_;
};

}  // namespace headroom::cli
