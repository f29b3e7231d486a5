#include "headroom/sim/child.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/dispatch/backend.h"

namespace headroom::sim {
namespace {

// The first byte of an answer: the kind of the rest. Headroom's errors with only a complaint are
// those of kErrors.
enum class Kind : char {
  result = 'r',
  unavailable = 'a',
  out_of_memory = 'm',  // Headroom's
  card_full = 'o',      // LibTorch's
  other = 'e',
};

struct ErrorKind {
  Kind kind;
  bool (*is)(const Error&);
  void (*raise)(const Complaint&);
};
template <typename Kept>
constexpr ErrorKind kept(char kind) {
  return {static_cast<Kind>(kind),
          [](const Error& error) { return dynamic_cast<const Kept*>(&error) != nullptr; },
          [](const Complaint& complaint) { throw Kept(complaint); }};
}
constexpr ErrorKind kErrors[] = {kept<UsageError>('u'),       kept<InputError>('i'),
                                 kept<UnavailableError>('a'), kept<WriteError>('w'),
                                 kept<BusyError>('b'),        kept<InternalError>('n')};

std::string answer(Kind kind, std::string_view text) {
  return static_cast<char>(kind) + std::string(text);
}
// Both parts of the complaint, separated by a line break, which the first part never has.
std::string answer(Kind kind, const Complaint& complaint) {
  return answer(kind, complaint.where + "\n" + complaint.words);
}
Complaint complaint_from(const std::string& text) {
  const std::size_t end = text.find('\n');
  return {text.substr(0, end), text.substr(end + 1)};
}

// LibTorch marks the children of a process that has autograd's device threads.
bool is_about_fork(std::string_view text) {
  return text.find("fork-based multiprocessing") != std::string_view::npos;
}

Complaint no_backward() {
  return expectation("in_child", "a process without autograd's device threads",
                     "one that has had a backward pass with a GPU or a simulated card in sight, so "
                     "that LibTorch refuses backward passes in its children",
                     "predict before the first such pass, with Step::prepare() of every training "
                     "step, or in a program of its own");
}

std::string answer_of(const std::function<std::string()>& work) {
  try {
    return answer(Kind::result, work());
  } catch (const c10::OutOfMemoryError& error) {
    return answer(Kind::card_full, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    if (is_about_fork(error.what())) return answer(Kind::unavailable, no_backward());
    return answer(Kind::other, error.what_without_backtrace());
  } catch (const OutOfMemoryError& error) {
    return answer(Kind::out_of_memory,
                  Complaint{error.complaint().where,
                            std::to_string(error.asked.count) + " " + error.complaint().words});
  } catch (const Error& error) {
    for (const ErrorKind& one : kErrors)
      if (one.is(error)) return answer(one.kind, error.complaint());
    return answer(Kind::other, error.what());
  } catch (const std::exception& error) {
    return answer(Kind::other, error.what());
  } catch (...) {
    return answer(Kind::other, "an exception that is not a std::exception");
  }
}

std::string take_out(const std::string& whole) {
  std::string text = whole.substr(1);
  const auto kind = static_cast<Kind>(whole[0]);
  if (kind == Kind::result) return text;
  if (kind == Kind::out_of_memory) {
    const auto [where, words] = complaint_from(text);
    throw OutOfMemoryError({where, words.substr(words.find(' ') + 1)}, Bytes{std::stoll(words)});
  }
  TORCH_CHECK_WITH(OutOfMemoryError, kind != Kind::card_full, text);
  for (const ErrorKind& one : kErrors)
    if (one.kind == kind) one.raise(complaint_from(text));
  throw std::runtime_error(text);
}

// ---- The two ends ----

// No exception may leave this function: the caller's code belongs to the parent.
[[noreturn]] void be_the_child(int to_parent, pid_t parent,
                               const std::function<std::string()>& work) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no one is left to read the answer
  if (::getppid() != parent) ::_exit(1);
  try {
    be_a_child();
    write_all(to_parent, answer_of(work), "the pipe to the parent");
  } catch (...) {  // the pipe is closed, or there is no memory for the answer
    ::_exit(1);
  }
  ::_exit(0);  // skips the parent's exit handlers
}

std::string read_to_end(int file) {
  std::string text;
  std::array<char, 4096> buffer;  // NOLINT: filled by read before use
  while (true) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

[[noreturn]] void no_child(const char* what) {
  throw UnavailableError("in_child", std::string("cannot ") + what + ": " + std::strerror(errno));
}

std::string end_of(int status) {
  if (!WIFSIGNALED(status)) return "its end with exit code " + std::to_string(WEXITSTATUS(status));
  return "its end by signal " + std::to_string(WTERMSIG(status)) + " (" +
         ::strsignal(WTERMSIG(status)) + ")";  // NOLINT(concurrency-mt-unsafe): a known number's
}

}  // namespace

bool needs_child() {
  return detail::cuda_device_in_use().has_value() || detail::takes_the_place_of_cuda();
}

void be_a_child() {
  at::set_num_threads(
      1);  // fork did not copy OpenMP's threads; with more than one it would wait for them
  detail::remove_cards();  // the parent's box; its tensors can still be freed
  detail::forget_cuda();
}

std::string in_child(const std::function<std::string()>& work) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) no_child("make a pipe");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int error = errno;
    for (const int end : pipe) ::close(end);
    errno = error;
    no_child("start a child process");
  }
  if (child == 0) be_the_child(pipe[1], parent, work);
  ::close(pipe[1]);
  const std::string whole = read_to_end(pipe[0]);
  ::close(pipe[0]);
  const int status = wait_for(child);
  if (status != 0 || whole.empty())
    throw UnavailableError(
        expectation("in_child", "an answer of the child process", end_of(status),
                    WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                        ? "the same with more memory, if the kernel killed it for lack of memory"
                        : "the same work in a program of its own, to see why it ends"));
  return take_out(whole);
}

}  // namespace headroom::sim
