#include "headroom/job/job.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headroom/base/error.h"
#include "headroom/job/detail/closed_streams.h"
#include "headroom/job/detail/ending.h"
#include "headroom/job/detail/process_tree.h"
#include "headroom/job/detail/signal_inbox.h"
#include "headroom/job/detail/standard_streams.h"
#include "headroom/job/detail/start.h"
#include "headroom/job/detail/stops.h"
#include "headroom/job/detail/tail.h"

namespace headroom::job {
namespace {

using Time = Clock::time_point;

constexpr std::size_t kKeptOutput = 256 * 1024;
// A shell's `fg` of a running job sends no signal, so it is looked for this often.
constexpr std::chrono::milliseconds kForegroundLook{500};
constexpr int kNotFound = 127, kNotExecutable = 126;  // as shells report it (POSIX 2.8.2)

bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

// Even intervals, however long each call takes; late ticks are skipped.
class Ticks {
 public:
  explicit Ticks(Seconds interval)
      : interval_(std::chrono::duration_cast<Clock::duration>(interval)) {
    // An early first tick, so that short jobs are sampled, too.
    if (interval_.count() > 0) next_ = Clock::now() + interval_ / 10;
  }
  [[nodiscard]] std::optional<Time> due() const { return next_; }
  [[nodiscard]] bool pass(Time now) {
    if (!next_ || now < *next_) return false;
    *next_ += interval_ * ((now - *next_) / interval_ + 1);
    return true;
  }

 private:
  Clock::duration interval_;
  std::optional<Time> next_;
};

}  // namespace

struct Job::State {
  explicit State(Launch what) : launch(std::move(what)) {}
  ~State() { end_by_force(); }

  JobEnd run(const Job& job, Seconds interval, const std::function<void(const Job&)>& each);
  bool start(JobEnd& end);
  void wait(std::optional<Time> tick);
  void carry();
  void take_signals();
  void pass_on(int signal);
  void look_at_command();
  bool everything_ended();
  void end_by_force();

  Launch launch;
  ClosedStreams closed;  // before any descriptor is opened
  SignalInbox signals;
  ProcessTree tree;
  Ending ending{tree};
  Tail tail{kKeptOutput};
  std::optional<Streams> streams;
  std::optional<Stops> stops;
  pid_t pid = 0;
  bool command_runs = false;
  bool tree_gone = true;
  int status = 0;  // of the command, from waitpid()
  std::optional<int> received;
  Time last_output_at = Clock::now();
  std::vector<pollfd> polled;
};

JobEnd Job::State::run(const Job& job, Seconds interval,
                       const std::function<void(const Job&)>& each) {
  JobEnd end;
  if (!start(end)) return end;
  Ticks ticks(interval);
  try {
    while (!everything_ended()) {
      wait(ticks.due());
      carry();  // before a stop, after which poll()'s result is out of date
      take_signals();
      if (ticks.pass(Clock::now()) && each) each(job);
      stops->advance(Clock::now());
      ending.advance(Clock::now());
    }
  } catch (...) {
    streams->take_back();
    end_by_force();
    throw;
  }
  streams->take_back();
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  end.exit_code = end.signal ? 128 + *end.signal : WEXITSTATUS(status);
  end.last_output = tail.text();
  end.received = received;
  end.ended_rest = ending.ended_rest();
  if (ending.has_given_up()) end.stuck = ending.stuck();
  const Unwritten unwritten = streams->unwritten();
  if (unwritten.error != 0) end.unwritten_errno = unwritten.error;
  end.unwritten_bytes = unwritten.bytes;
  streams.reset();
  return end;
}

bool Job::State::start(JobEnd& end) {
  streams.emplace(closed, launch.output_to_error);
  const Started started =
      job::start({.command = launch.command,
                  .environment = launch.environment,
                  .inherited = launch.inherited,
                  .standard = streams->standard(),
                  .terminal = streams->controlling_terminal(),
                  .signal_mask = launch.signal_mask ? &*launch.signal_mask : nullptr},
                 signals);
  if (started.error != 0) {
    end.started = false;
    end.not_started = std::strerror(started.error);
    end.exit_code = started.error == ENOENT ? kNotFound : kNotExecutable;
    streams.reset();
    return false;
  }
  pid = started.pid;
  command_runs = true;
  tree_gone = false;
  stops.emplace(pid, *streams, signals);
  streams->started(pid);
  return true;
}

// ---- The loop

void Job::State::wait(std::optional<Time> tick) {
  polled.clear();
  polled.push_back({.fd = signals.descriptor(), .events = POLLIN, .revents = 0});
  streams->prepare(polled);
  const Time now = Clock::now();
  std::optional<Time> next = tick;
  const auto not_after = [&](std::optional<Time> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  not_after(ending.due());
  not_after(stops->due());
  if (streams->waits_for_foreground()) not_after(now + kForegroundLook);
  if (streams->ready()) not_after(now);
  int milliseconds = -1;
  if (next) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now).count();
    milliseconds = static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
  }
  if (::poll(polled.data(), polled.size(), milliseconds) < 0)
    for (pollfd& none : polled) none.revents = 0;
}

void Job::State::carry() {
  const Typed typed = streams->serve(polled, [&](std::string_view text) {
    tail.add(text);
    last_output_at = Clock::now();
  });
  if (typed.interrupt) received = SIGINT;
  if (typed.interrupt && !streams->is_controlled()) stops->typed_interrupt();
  // The job's terminal has no process group, or none any more.
  if (typed.interrupt && (!command_runs || !streams->is_controlled())) pass_on(SIGINT);
  if (typed.suspend && command_runs) stops->typed_suspend();
  streams->look_at_foreground();
}

void Job::State::take_signals() {
  if ((polled[0].revents & POLLIN) == 0) return;
  for (const int signal : signals.take()) {
    if (signal == SIGCHLD) {
      look_at_command();
      if (command_runs) tree.collect(pid);  // orphans, for which no other parent waits
    } else if (signal == SIGWINCH) {
      streams->copy_size();
      if (!streams->is_controlled()) pass_on(signal);
    } else if (signal == SIGTSTP) {
      if (command_runs) stops->asked_to_suspend();
    } else if (signal == SIGCONT) {
      if (command_runs) stops->asked_to_go_on();
    } else {
      pass_on(signal);
    }
  }
}

void Job::State::pass_on(int signal) {
  if (asks_to_end(signal)) received = signal;
  if (command_runs) {
    ::kill(-pid, signal);
  } else {  // its group may be gone, and its number reused
    for (const ProcessIdentity& process : tree.living()) tree.signal(process, signal);
    // No process is left: do not wait for a slow reader of the remaining output.
    if (tree_gone && asks_to_end(signal)) streams->drop();
  }
}

void Job::State::look_at_command() {
  siginfo_t what{};
  while (command_runs &&
         ::waitid(P_PID, static_cast<id_t>(pid), &what, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) ==
             0 &&
         what.si_pid == pid) {
    if (::waitpid(pid, &status, WUNTRACED | WNOHANG) != pid) break;
    if (WIFSTOPPED(status)) {
      stops->command_stopped(WSTOPSIG(status));
    } else {
      command_runs = false;
      ending.command_ended(Clock::now());
    }
    what = {};
  }
}

bool Job::State::everything_ended() {
  if (command_runs) return false;
  if (!tree_gone) {
    tree_gone = tree.collect(pid) || ending.has_given_up();
    if (tree_gone) streams->expect_end();
  }
  return tree_gone && streams->ended();
}

// Kills the tree without carrying its output, because no caller waits for it.
void Job::State::end_by_force() {
  if (tree_gone) return;
  streams->drop();
  ending.ask(Clock::now());
  while (!everything_ended()) {
    wait({});
    static_cast<void>(signals.take());
    look_at_command();
    ending.advance(Clock::now());
  }
}

// ---- The job

Job::Job(Launch launch) {
  if (launch.command.empty()) throw UsageError("job", "no command given; try -- python train.py");
  state_ = std::make_unique<State>(std::move(launch));
}

Job::~Job() = default;

JobEnd Job::run(Seconds interval, const std::function<void(const Job&)>& each) {
  return state_->run(*this, interval, each);
}

pid_t Job::pid() const {
  return state_->pid;
}

std::vector<pid_t> Job::pids() const {
  std::vector<pid_t> pids;
  if (state_->tree_gone) return pids;
  for (const ProcessIdentity& process : state_->tree.living()) pids.push_back(process.pid);
  return pids;
}

Clock::time_point Job::last_output_at() const {
  return state_->last_output_at;
}

void Job::end() {
  if (!state_->tree_gone) state_->ending.ask(Clock::now());
}

}  // namespace headroom::job
