#include "headroom/supervise/stall.h"

#include <algorithm>
#include <utility>

#include "headroom/base/process.h"

namespace headroom::supervise {
namespace {

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
  const bool on_cards = !usage.samples().empty() && !usage.samples().back().cards.empty();
  if (on_cards) {
    last_work_ = std::max(last_work_, usage.last_activity());
  } else if (const long long ticks = cpu_ticks_of(pids); ticks != cpu_ticks_) {
    cpu_ticks_ = ticks;
    last_work_ = now;
  }
  const Seconds quiet = now - std::max(last_work_, last_output);
  if (quiet < *after_) {
    told_ = false;
    return {};
  }
  if (std::exchange(told_, true)) return {};
  return "stalled: for " + duration_text(quiet) + " it has printed nothing and " +
         (on_cards ? "its cards have" : "its processes have") + " done nothing";
}

}  // namespace headroom::supervise
