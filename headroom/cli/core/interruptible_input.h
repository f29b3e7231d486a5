// Standard input that Ctrl-C can end: while it exists, file 0 is a pipe which a thread fills from
// the real one. Once the token is stopped the pipe ends, however long nothing comes; a plain read()
// would wait on, because Interrupt keeps the signal from it.
//
// Whoever reads from file 0 must have stopped before this ends.
#pragma once

#include <stop_token>
#include <thread>

namespace headroom::cli {

class InterruptibleInput {
 public:
  explicit InterruptibleInput(std::stop_token stop);
  ~InterruptibleInput();
  InterruptibleInput(const InterruptibleInput&) = delete;
  InterruptibleInput& operator=(const InterruptibleInput&) = delete;

 private:
  void fill(int to, const std::stop_token& unwanted) const;

  std::stop_token stop_;
  int real_ = -1;  // -1: could not be made; file 0 is as it was
  std::jthread filler_;
};

}  // namespace headroom::cli
