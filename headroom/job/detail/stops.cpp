#include "headroom/job/detail/stops.h"

#include <csignal>
#include <cstdlib>
#include <string>

#include "headroom/base/file.h"

namespace headroom::job {
namespace {

constexpr std::chrono::milliseconds kToTidyUp{100};

// True if the process has the signal in this set: "SigIgn", "SigCgt" of /proc/PID/status.
bool has_signal_in(const char* set, pid_t pid, int signal) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status").value_or("");
  const std::size_t at = status.find(std::string(set) + ":\t");
  if (at == std::string::npos) return false;
  const unsigned long long bits =
      std::strtoull(status.c_str() + at + std::string(set).size() + 2, nullptr, 16);
  return (bits >> (signal - 1) & 1) != 0;
}

// Signals all other processes of our process group, and not this one.
void signal_our_group(int signal) {
  struct sigaction before {
  }, ignored{};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(signal, &ignored, &before);
  ::kill(0, signal);
  ::sigaction(signal, &before, nullptr);
}

}  // namespace

void Stops::typed_suspend() {
  if (!streams_.command_has_keys()) return;  // an inner shell handles its own jobs
  typed_ = true;
  if (streams_.is_controlled()) return stop_soon();
  asked_ = true;
  ::kill(-group_, SIGTSTP);
}

// As the kernel does, to the whole pipeline.
void Stops::typed_interrupt() {
  signal_our_group(SIGINT);
}

void Stops::asked_to_suspend() {
  ::kill(-group_, SIGTSTP);
  if (streams_.is_controlled()) stop_soon();
}

void Stops::stop_soon() {
  if (has_signal_in("SigIgn", group_, SIGTSTP)) return;
  asked_ = true;
  const bool handled = has_signal_in("SigCgt", group_, SIGTSTP);
  stop_at_ = Clock::now() + (handled ? kToTidyUp : kToTidyUp * 0);
}

void Stops::advance(Clock::time_point now) {
  if (!stop_at_ || now < *stop_at_) return;
  stop_at_.reset();
  ::kill(-group_, SIGSTOP);
}

void Stops::asked_to_go_on() {
  streams_.after_a_stop();
  ::kill(-group_, SIGCONT);
}

void Stops::command_stopped(int signal) {
  stop_at_.reset();
  if (signal == SIGTTIN || signal == SIGTTOU) return wants_terminal(signal);
  // A SIGSTOP from outside concerns only its sender and the command; the sender continues it.
  if (signal != SIGTSTP && !asked_) return;
  stop_with_it(SIGTSTP, typed_ || streams_.is_lent());
}

void Stops::wants_terminal(int signal) {
  if (streams_.lend()) {
    ::kill(-group_, SIGCONT);
  } else {
    stop_with_it(signal, true);
  }
}

void Stops::stop_with_it(int signal, bool whole_group) {
  asked_ = typed_ = false;
  const bool was_lent = streams_.is_lent();
  streams_.take_back();
  if (whole_group) signal_our_group(signal);
  const bool stopped = signals_.stop_this_process(signal);
  // No shell can continue this process, so none would continue the job: SIGHUP, as the kernel does.
  if (!stopped && signal != SIGTSTP) ::kill(-group_, SIGHUP);
  if (was_lent) streams_.lend();
  asked_to_go_on();
}

}  // namespace headroom::job
