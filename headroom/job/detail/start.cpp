#include "headroom/job/detail/start.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "headroom/base/error.h"
#include "headroom/base/interrupt.h"
#include "headroom/base/process.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace headroom::job {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw BusyError("job", "cannot make " + what + ": " + std::strerror(error));
}

// Runs in the child, where allocating is not safe. Returns only on failure.
void become(const StartPlan& plan, const SignalInbox& inbox, char** arguments, char** variables) {
  if (plan.terminal >= 0) {
    ::setsid();
    ::ioctl(plan.terminal, TIOCSCTTY, 0);
  } else {
    ::setpgid(0, 0);
  }
  for (int stream = 0; stream < 3; ++stream)
    if (const int from = plan.standard[static_cast<std::size_t>(stream)]; from >= 0)
      ::dup2(from, stream);
  for (const int kept : plan.inherited) ::fcntl(kept, F_SETFD, 0);
  inbox.give_back_in_child(plan.signal_mask);
  environ = variables;  // PATH may be among them
  ::execvp(arguments[0], arguments);
}

}  // namespace

Started start(const StartPlan& plan, const SignalInbox& inbox) {
  std::vector<std::string> command = plan.command;
  std::vector<std::string> environment = environment_with(plan.environment);
  std::vector<char*> arguments = pointers_to(command);
  std::vector<char*> variables = pointers_to(environment);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("a pipe", errno);
  const Descriptor told(ends[0]);
  Descriptor tell(ends[1]);

  Started started;
  {
    sigset_t all;
    sigfillset(&all);
    const SignalsHeld held(all);  // none is handled between fork() and exec()
    started.pid = ::fork();
    if (started.pid == 0) {
      become(plan, inbox, arguments.data(), variables.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t written = ::write(tell.get(), &error, sizeof error);
      ::_exit(127);
    }
  }
  if (started.pid < 0) fail("a process", errno);
  tell.close();
  // A successful exec closes the other end, and there is nothing to read.
  ssize_t got = 0;
  do got = ::read(told.get(), &started.error, sizeof started.error);
  while (got < 0 && errno == EINTR);
  if (got == sizeof started.error)
    while (::waitpid(started.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  return started;
}

}  // namespace headroom::job
