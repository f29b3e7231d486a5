// Standard input that Ctrl-C can end: while this object exists, descriptor 0 is a pipe that a
// thread fills from the real input. When the token is stopped the pipe ends, even if no input
// comes; a plain read() would keep waiting, because Interrupt blocks the signal.
//
// The pipe also ends when reading the real input fails (a disk error, a closed terminal). To tell
// that from the end of the input, look at the token and call check().
//
// Readers of descriptor 0 must stop before this object ends.
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

  // Stops with the given token, and before the pipe ends too early.
  [[nodiscard]] std::stop_token token() const { return ended_.get_token(); }
  // Throws InputError if the real input could not be read to its end.
  void check() const;

 private:
  void fill(int to, const std::stop_token& unwanted);
  void give_up(int error);

  std::stop_source ended_;
  std::stop_callback<std::function<void()>> with_given_;
  std::atomic<int> error_{0};
  int real_ = -1;  // -1: the pipe could not be made; descriptor 0 is unchanged
  std::jthread filler_;
};

}  // namespace headroom::cli
