// Ends one process by the rules of `headroom clean` (end_idle.h), in a thread of its own: watching
// it takes 10 s.
#pragma once

#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "headroom/base/process.h"

namespace headroom::cli {

class Ending {
 public:
  // `tell`: called in the other thread when answer() has changed.
  Ending(std::string gpus, std::function<void()> tell)
      : gpus_(std::move(gpus)), tell_(std::move(tell)) {}

  // One at a time: false while an earlier one runs.
  bool begin(const ProcessStat& process);
  // "watching PID 4242, 7 s left", then how it ended. "" if nothing has changed since the last
  // call.
  [[nodiscard]] std::string answer();

 private:
  void say(std::string text);
  void finish(std::string text);
  [[nodiscard]] std::string outcome(const ProcessStat& process, const std::stop_token& stop);

  const std::string gpus_;
  const std::function<void()> tell_;
  std::mutex guard_;
  std::string answer_;
  bool is_busy_ = false;
  std::jthread thread_;
};

}  // namespace headroom::cli
