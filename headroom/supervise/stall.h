// Detects a stalled job: it prints nothing, and its cards do no work (without real cards, its
// processes). A long gap between looks does not count, because this process and the job were
// stopped (Ctrl-Z).
//
//   Stall stall(Seconds(600));
//   if (auto sentence = stall.look(job.last_output_at(), usage, pids)) say(*sentence);
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "headroom/supervise/usage.h"

namespace headroom::supervise {

class Stall {
 public:
  // std::nullopt: never report.
  explicit Stall(std::optional<Seconds> after, Clock::time_point now = Clock::now())
      : after_(after), last_look_(now) {}

  // Call it about once a second. Returns a sentence once for each stall.
  [[nodiscard]] std::optional<std::string> look(Clock::time_point last_output, const Usage& usage,
                                                const std::vector<pid_t>& pids,
                                                Clock::time_point now = Clock::now());

 private:
  std::optional<Seconds> after_;
  Clock::time_point last_look_;
  Seconds quiet_{0};
  long long cpu_ticks_ = 0;
  bool told_ = false;
};

}  // namespace headroom::supervise
