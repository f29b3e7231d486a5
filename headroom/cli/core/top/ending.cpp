#include "headroom/cli/core/top/ending.h"

#include <exception>
#include <system_error>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/machine/end_idle.h"

namespace headroom::cli {

void Ending::say(std::string text) {
  {
    const std::lock_guard lock(guard_);
    answer_ = std::move(text);
  }
  tell_();
}

void Ending::finish(std::string text) {
  {
    const std::lock_guard lock(guard_);
    is_busy_ = false;
  }
  say(std::move(text));
}

// How the process ended, in words. Throws nothing that would end the thread, and with it the
// program.
std::string Ending::outcome(const ProcessStat& process, const std::stop_token& stop) {
  const std::string name = "PID " + std::to_string(process.identity.pid);
  try {
    const auto answers = machine::end_idle({process}, gpus_, ProcessTable(), stop, [&](int left) {
      say("watching " + name + " for progress, " + std::to_string(left) + " s");
    });
    return answers.empty() ? "" : answers.front().sentence;
  } catch (const Error& error) {
    return "not ending " + name + ": " + error.sentence();
  } catch (const std::exception& error) {
    return "not ending " + name + ": " + error.what();
  }
}

bool Ending::begin(const ProcessStat& process) {
  {
    const std::lock_guard lock(guard_);
    if (std::exchange(is_busy_, true)) return false;
  }
  try {
    thread_ = std::jthread(
        [this, process](const std::stop_token& stop) { finish(outcome(process, stop)); });
  } catch (const std::system_error& error) {  // no thread is left
    finish("not ending PID " + std::to_string(process.identity.pid) + ": " + error.what());
  }
  return true;
}

std::string Ending::answer() {
  const std::lock_guard lock(guard_);
  return std::exchange(answer_, {});
}

}  // namespace headroom::cli
