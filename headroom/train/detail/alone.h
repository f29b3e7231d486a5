// While it lives, one step runs on this thread: its loss or a listener cannot run a step, and no
// other thread can run this one.
#pragma once

#include <atomic>

namespace headroom::train::detail {

class Alone {
 public:
  // Throws UsageError. `runs`: the step's.
  explicit Alone(std::atomic<bool>& runs);
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  std::atomic<bool>& runs_;
};

}  // namespace headroom::train::detail
