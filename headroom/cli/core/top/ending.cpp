#include "headroom/cli/core/top/ending.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/cli/core/end_idle.h"

namespace headroom::cli {

void Ending::say(std::string text) {
  {
    const std::lock_guard lock(guard_);
    answer_ = std::move(text);
  }
  tell_();
}

bool Ending::begin(const ProcessStat& process) {
  {
    const std::lock_guard lock(guard_);
    if (std::exchange(is_busy_, true)) return false;
  }
  thread_ = std::jthread([this, process](const std::stop_token& stop) {
    const std::string name = "PID " + std::to_string(process.identity.pid);
    std::string result;
    try {
      const auto answers = end_idle({process}, gpus_, ProcessTable(), stop, [&](int left) {
        say("watching " + name + " for progress, " + std::to_string(left) + " s");
      });
      if (!answers.empty()) result = answers.front().sentence;
    } catch (const Error& error) {
      result = "not ending " + name + ": " + error.sentence();
    }
    {
      const std::lock_guard lock(guard_);
      is_busy_ = false;
    }
    say(result);
  });
  return true;
}

std::string Ending::answer() {
  const std::lock_guard lock(guard_);
  return std::exchange(answer_, {});
}

}  // namespace headroom::cli
