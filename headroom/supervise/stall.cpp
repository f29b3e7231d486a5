#include "headroom/supervise/stall.h"

#include <algorithm>
#include <utility>

#include "headroom/base/process.h"

namespace headroom::supervise {
namespace {

constexpr Seconds kLongestLook{5.0};

long long cpu_ticks_of(const std::vector<pid_t>& pids) {
  const ProcessTable processes;
  long long ticks = 0;
  for (const pid_t pid : pids)
    if (const auto stat = processes.stat(pid)) ticks += stat->cpu_ticks;
  return ticks;
}

}  // namespace

std::optional<std::string> Stall::look(Clock::time_point last_output, const Usage& usage,
                                       const std::vector<pid_t>& pids, Clock::time_point now) {
  if (!after_) return {};
  const Clock::time_point last_look = std::exchange(last_look_, now);
  // Simulated cards report no activity: the job's processes compute for them.
  const bool on_cards = !usage.last_machine().simulated && !usage.samples().empty() &&
                        !usage.samples().back().cards.empty();
  bool worked = last_output > last_look;
  if (on_cards) {
    worked = worked || usage.last_activity() > last_look;
  } else {
    const long long ticks = cpu_ticks_of(pids);
    worked = std::exchange(cpu_ticks_, ticks) != ticks || worked;
  }
  quiet_ = worked ? Seconds(0) : quiet_ + std::min<Seconds>(now - last_look, kLongestLook);
  if (quiet_ < *after_) {
    told_ = false;
    return {};
  }
  if (std::exchange(told_, true)) return {};
  return "stalled: for " + duration_text(quiet_) + " it has printed nothing and " +
         (on_cards ? "its cards have" : "its processes have") + " done nothing";
}

}  // namespace headroom::supervise
