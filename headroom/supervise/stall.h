// Notices a job that does nothing any more: it prints nothing, and neither its cards nor, without
// real cards, its processes do any work. Time between looks that were late does not count: we were
// stopped (Ctrl-Z), and the job with us.
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
  // Nothing: never.
  explicit Stall(std::optional<Seconds> after, Clock::time_point now = Clock::now())
      : after_(after), last_look_(now) {}

  // To be called about once a second. A sentence, once for each time that it does nothing for so
  // long.
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
