// `headroom top`: the machine on a full screen, drawn again at an interval.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <stop_token>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/interrupt.h"
#include "headroom/cli/core/gpus_option.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/top/draw.h"
#include "headroom/cli/core/top/ending.h"
#include "headroom/cli/core/top/full_screen.h"
#include "headroom/cli/core/top/watcher.h"
#include "headroom/gpu/holders.h"
#include "headroom/machine/holders_at_work.h"

namespace headroom::cli {
namespace {

struct TopOptions {
  std::string gpus, interval = "1s";
  bool once = false;
};

Seconds interval_of(const TopOptions& options) {
  const Seconds interval = parse_duration(options.interval);
  if (interval < Seconds(0.25))
    throw UsageError(expectation("--interval",
                                 "at least 250ms: the driver serialises its callers, and process "
                                 "lists cost it milliseconds",
                                 options.interval, "1s"));
  return interval;
}

sigset_t screen_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTSTP);
  sigaddset(&signals, SIGWINCH);
  return signals;
}

// Wakes the loop from other threads.
class Bell {
 public:
  Bell() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!descriptor_.is_open()) throw BusyError("top", "no descriptor is left");
  }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = ::write(descriptor_.get(), &one, sizeof one);
  }
  void quiet() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = ::read(descriptor_.get(), &count, sizeof count);
  }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
};

class Top {
 public:
  Top(const TopOptions& options, const Terminal& terminal)
      : terminal_(terminal),
        held_(screen_signals()),
        signals_(inbox()),
        ending_(options.gpus, [this] { bell_.ring(); }),
        interval_(interval_of(options)),
        watcher_(options.gpus, interval_, [this] { bell_.ring(); }) {}

  ExitCode run();

 private:
  [[nodiscard]] static int inbox() {
    const sigset_t signals = screen_signals();
    return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  void look();
  void draw_on(FullScreen& screen);
  [[nodiscard]] bool wait();  // false: the terminal is gone
  void heed_signals(FullScreen& screen);
  [[nodiscard]] bool heed_keys(FullScreen& screen);  // false: quit
  void explain();
  void ask();
  void end();

  const Terminal terminal_;
  const SignalsHeld held_;  // before all threads
  const Interrupt interrupt_;
  const Descriptor signals_;
  const Bell bell_;
  const ProcessTable processes_;
  Controls controls_;
  // At first an empty one, until the driver has answered.
  std::shared_ptr<const Picture> picture_ =
      std::make_shared<Picture>(Picture{.wall = std::chrono::system_clock::now()});
  Ending ending_;
  const Seconds interval_;
  Watcher watcher_;
};

void Top::look() {
  if (auto picture = watcher_.latest()) picture_ = std::move(picture);
  if (std::string answer = ending_.answer(); !answer.empty()) controls_.message = answer;
}

void Top::draw_on(FullScreen& screen) {
  screen.show(
      draw(*picture_, controls_, {.terminal = screen.terminal(), .height = screen.height()}));
}

bool Top::wait() {
  std::array<pollfd, 3> waiting{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
                                pollfd{bell_.descriptor(), POLLIN, 0}};
  // Ages on the screen grow even if no new picture comes.
  const auto most = static_cast<int>(1000 * std::clamp(2 * interval_.count(), 2.0, 60.0));
  ::poll(waiting.data(), waiting.size(), most);
  if (waiting[2].revents != 0) bell_.quiet();
  return (waiting[0].revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

void Top::heed_signals(FullScreen& screen) {
  signalfd_siginfo received{};
  bool is_to_stop = false, is_resized = false;
  while (::read(signals_.get(), &received, sizeof received) == sizeof received) {
    is_to_stop = is_to_stop || received.ssi_signo == SIGTSTP;
    is_resized = is_resized || received.ssi_signo == SIGWINCH;
  }
  if (is_to_stop) screen.suspend();
  if (is_resized) screen.resize();
}

bool Top::heed_keys(FullScreen& screen) {
  while (const auto key = screen.next_key()) {
    switch (press(controls_, *key, *picture_)) {
      case Request::quit:
        return false;
      case Request::redraw:
        screen.forget();
        break;
      case Request::explain:
        explain();
        break;
      case Request::ask:
        ask();
        break;
      case Request::end:
        end();
        break;
      case Request::none:
        break;
    }
  }
  return true;
}

void Top::explain() {
  controls_.explanation = {};
  for (const auto& report :
       machine::holders_of(picture_->machine, watch::job_statuses(), processes_, false))
    if (report.process == controls_.to_end->process && report.card == controls_.to_end->uuid)
      controls_.explanation = {to_string(report.holder_class), report.why, report.action};
}

// Refuses at once a process that need not be watched for 10 s.
void Top::ask() {
  const ProcessIdentity process = *controls_.to_end->process;
  const auto now = processes_.stat(process.pid);
  const ProcessStat seen =
      now && now->identity == process ? *now : ProcessStat{.identity = process};
  if (const auto spare = reason_to_spare(picture_->machine, processes_, seen)) {
    controls_.message = "not ending PID " + std::to_string(process.pid) + ": " + *spare;
    return;
  }
  controls_.typed.clear();
  controls_.typing = Controls::Typing::yes;
}

void Top::end() {
  const ProcessIdentity process = *controls_.to_end->process;
  const auto now = processes_.stat(process.pid);
  if (!now || now->identity != process)
    controls_.message = "PID " + std::to_string(process.pid) + " is gone already";
  else if (!ending_.begin(*now))
    controls_.message = "one process at a time: wait until the other one is ended";
}

ExitCode Top::run() {
  // A wrong --gpus is reported before the screen is taken.
  if (auto picture = watcher_.first(Seconds(1))) picture_ = std::move(picture);
  const std::stop_callback wake(interrupt_.token(), [this] { bell_.ring(); });
  FullScreen screen(terminal_);
  while (!interrupt_.happened()) {
    look();
    draw_on(screen);
    if (!wait()) break;
    heed_signals(screen);
    if (!heed_keys(screen)) return kOk;
  }
  return interrupt_.happened() ? interrupt_.exit_code() : kOk;
}

// The same as text, for a pipe or a file.
ExitCode show_once(const TopOptions& options) {
  Picture picture = picture_of(machine::look_at_machine(options.gpus), watch::job_statuses());
  Terminal terminal = standard_output();
  if (!terminal.is_terminal && !environment("COLUMNS")) terminal.width = 140;
  std::string text;
  for (const Line& line : draw(picture, {}, {.terminal = terminal})) {
    std::string one = text_of(line);
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  }
  print(text);
  return kOk;
}

ExitCode run_top(const TopOptions& options) {
  static_cast<void>(interval_of(options));
  if (options.once || !can_draw()) return show_once(options);
  return Top(options, screen_terminal()).run();
}

}  // namespace

void add_top(Registry& registry) {
  auto [command, options] = registry.add(
      &run_top, "top", "Watch GPUs, processes and trainings on a full screen",
      "  headroom top                       # q quits, h shows the keys\n"
      "  headroom top --interval 5s\n"
      "  headroom top --once                # once, as text; so it is in a pipe\n"
      "  headroom top --gpus sim:8x24GiB@lab\n\n"
      "The key `e` ends a process by the rules of `headroom clean --end`: it must be yours and\n"
      "idle, and you must confirm.");
  add_gpus_option(command, options->gpus);
  command->add_option("--interval", options->interval, "Time between samples")
      ->capture_default_str();
  command->add_flag("--once", options->once, "Print the screen once, as text");
}

}  // namespace headroom::cli
