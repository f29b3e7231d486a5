#include "headroom/machine/end_idle.h"

#include <csignal>

#include "headroom/base/interrupt.h"
#include "headroom/gpu/holders.h"
#include "headroom/machine/look.h"

namespace headroom::machine {
namespace {

// SIGTERM, and SIGKILL after 5 s. A stop leaves it at SIGTERM.
bool end_process(const ProcessStat& process, const ProcessTable& processes,
                 const std::stop_token& stop) {
  ::kill(process.identity.pid, SIGTERM);
  for (int tenths = 0; tenths < 100; ++tenths) {
    if (!processes.alive(process.identity)) return true;
    if (tenths == 50) ::kill(process.identity.pid, SIGKILL);
    if (!sleep_for(Seconds(0.1), stop)) break;
  }
  return !processes.alive(process.identity);
}

}  // namespace

std::vector<EndAnswer> end_idle(const std::vector<ProcessStat>& named, const std::string& gpus,
                                const ProcessTable& processes, const std::stop_token& stop,
                                const std::function<void(int)>& left) {
  for (int seconds = static_cast<int>(gpu::kWatched.count()); seconds > 0; --seconds) {
    left(seconds);
    if (!sleep_for(Seconds(1), stop)) return {};
  }
  const Look after = look_at_machine(gpus, {.activity = true, .keep_sampling = false});
  std::vector<EndAnswer> answers;
  for (const ProcessStat& process : named) {
    const std::string name = "PID " + std::to_string(process.identity.pid);
    if (const auto spare = reason_to_spare(after.machine, processes, process))
      answers.push_back({false, "not ending " + name + ": " + *spare});
    else if (end_process(process, processes, stop))
      answers.push_back({true, "ended " + name});
    else
      answers.push_back({false, name + " does not end"});
  }
  return answers;
}

}  // namespace headroom::machine
