#include "headroom/job/detail/standard_streams.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headroom/base/error.h"

namespace headroom::job {
namespace {

bool is_terminal(int stream) {
  return ::isatty(stream) == 1;
}

bool are_same_file(int a, int b) {
  struct stat one {
  }, other{};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

Descriptor our_terminal() {
  return Descriptor(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
}

// Reads a pipe and writes to a terminal.
bool is_last_of_pipeline(int output) {
  return !is_terminal(STDIN_FILENO) && is_terminal(output);
}

int output_of_ours(bool output_to_error) {
  return output_to_error ? STDERR_FILENO : STDOUT_FILENO;
}

}  // namespace

Streams::Streams(const ClosedStreams& closed, bool output_to_error)
    : closed_(closed),
      our_terminal_(is_last_of_pipeline(output_of_ours(output_to_error)) ? our_terminal()
                                                                         : Descriptor()),
      keys_(our_terminal_.is_open() ? our_terminal_.get() : STDIN_FILENO),
      raw_(keys_) {
  const int output = output_of_ours(output_to_error);
  const bool two_ways = is_terminal(STDIN_FILENO) && is_terminal(output);
  shown_on_ = is_terminal(output) ? output : STDERR_FILENO;
  if (is_terminal(shown_on_)) terminal_ = open_pseudo_terminal(shown_on_, !two_ways);
  controlled_ = terminal_ && two_ways;
  if (terminal_)
    copiers_.emplace_back(Descriptor(::fcntl(terminal_->ours.get(), F_DUPFD_CLOEXEC, 3)),
                          shown_on_);
  if (controlled_) standard_[0] = terminal_->jobs.get();
  if (terminal_ && (controlled_ || our_terminal_.is_open()))
    keyboard_.emplace(keys_, terminal_->ours.get());
  connect_output(STDOUT_FILENO, output);
  if (terminal_ && is_terminal(STDERR_FILENO))
    connect_output(STDERR_FILENO, STDERR_FILENO);
  else if (standard_[1] >= 0 && are_same_file(output, STDERR_FILENO))
    standard_[2] = standard_[1];
  else
    connect_output(STDERR_FILENO, STDERR_FILENO);
}

Streams::~Streams() {
  take_back();
}

void Streams::connect_output(int stream, int sink) {
  int& end = standard_[static_cast<std::size_t>(stream)];
  if (terminal_ && is_terminal(sink))
    end = terminal_->jobs.get();
  else if (!closed_.contains(sink))
    end = opened_pipe(sink);
  else if (stream != sink)
    end = sink;
}

int Streams::opened_pipe(int sink) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw BusyError("job", "cannot make a pipe: " + std::string(std::strerror(errno)));
  jobs_ends_.emplace_back(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  copiers_.emplace_back(Descriptor(ends[0]), sink);
  return ends[1];
}

int Streams::controlling_terminal() const {
  return controlled_ ? terminal_->jobs.get() : -1;
}

void Streams::started(pid_t group) {
  group_ = group;
  jobs_ends_.clear();
  if (terminal_) terminal_->jobs.close();
  look_at_foreground();
}

void Streams::prepare(std::vector<pollfd>& polled) {
  for (Copier& copier : copiers_) copier.prepare(polled);
  if (keyboard_ && !end_expected_) keyboard_->prepare(polled, raw_.is_raw());
}

Typed Streams::serve(const std::vector<pollfd>& polled,
                     const std::function<void(std::string_view)>& seen) {
  for (Copier& copier : copiers_) copier.serve(polled, seen);
  if (terminal_ && copiers_.front().reader_is_gone()) hang_up();
  if (!keyboard_ || end_expected_) return {};
  const Typed typed = keyboard_->serve(polled);
  if (typed.nothing) raw_.forget();
  return typed;
}

// Our terminal is gone (a lost connection, a closed window), so the job's ends, too: its writes
// fail, and the kernel sends SIGHUP if it is the controlling terminal.
void Streams::hang_up() {
  keyboard_.reset();
  controlled_ = false;
  terminal_.reset();
}

void Streams::expect_end() {
  end_expected_ = true;
  for (Copier& copier : copiers_) copier.expect_end();
}

void Streams::drop() {
  for (Copier& copier : copiers_) copier.stop();
}

bool Streams::ended() const {
  return std::all_of(copiers_.begin(), copiers_.end(), [](const Copier& c) { return c.ended(); });
}

bool Streams::ready() const {
  return end_expected_ && std::any_of(copiers_.begin(), copiers_.end(),
                                      [](const Copier& c) { return c.would_read(); });
}

Unwritten Streams::unwritten() const {
  Unwritten all;
  for (const Copier& copier : copiers_) {
    if (all.error == 0) all.error = copier.unwritten().error;
    all.bytes += copier.unwritten().bytes;
  }
  return all;
}

// ---- The terminal

bool Streams::wants_keys() const {
  termios modes{};
  return controlled_ || (terminal_ && ::tcgetattr(terminal_->ours.get(), &modes) == 0 &&
                         (modes.c_lflag & ICANON) == 0);
}

void Streams::look_at_foreground() {
  if (!keyboard_) return;
  if (raw_.is_raw()) {
    if (!wants_keys()) raw_.leave();
    return;
  }
  if (!wants_keys() || !is_foreground_of(keys_)) return;
  raw_.enter();
  copy_size();
}

void Streams::after_a_stop() {
  if (raw_.is_raw() && !is_foreground_of(keys_)) raw_.forget();
  raw_.renew();
  look_at_foreground();
  copy_size();
}

bool Streams::command_has_keys() const {
  if (!controlled_) return raw_.is_raw();
  return ::tcgetpgrp(terminal_->ours.get()) == group_;
}

void Streams::copy_size() {
  if (terminal_) copy_terminal_size(shown_on_, terminal_->ours.get());
}

bool Streams::lend() {
  if (!our_terminal_.is_open()) our_terminal_ = our_terminal();
  if (!our_terminal_.is_open()) return false;
  if (!controlled_) raw_.leave();
  const pid_t now = ::tcgetpgrp(our_terminal_.get());
  lent_ = now == group_ || (now == ::getpgrp() && ::tcsetpgrp(our_terminal_.get(), group_) == 0);
  return lent_;
}

void Streams::take_back() {
  raw_.leave();
  // Unless another group has it by now.
  if (lent_ && ::tcgetpgrp(our_terminal_.get()) == group_)
    ::tcsetpgrp(our_terminal_.get(), ::getpgrp());
  lent_ = false;
}

}  // namespace headroom::job
