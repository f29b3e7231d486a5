// Ends processes by the rules of `headroom clean`: only those that the user named and owns, that
// showed no GPU activity and no CPU progress while watched, and whose parent job is gone
// (gpu/holders.h). For `clean` and `top`.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "headroom/base/process.h"

namespace headroom::machine {

struct EndAnswer {
  bool ended = false;
  std::string sentence;  // "ended PID 4242", "not ending PID 4242: it belongs to bob"
};

// Watches the processes for gpu::kWatched, passing the seconds that are left to `left`, and then
// ends the idle ones: SIGTERM, and SIGKILL after 5 s. One answer a process; none if `stop` came
// while it watched. Throws as look_at_machine() does.
[[nodiscard]] std::vector<EndAnswer> end_idle(const std::vector<ProcessStat>& named,
                                              const std::string& gpus,
                                              const ProcessTable& processes,
                                              const std::stop_token& stop,
                                              const std::function<void(int)>& left);

}  // namespace headroom::machine
