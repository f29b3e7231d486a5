// A command below a Job in a terminal: its view of the terminal, and the terminal's state
// afterwards. The test makes the terminal, with the program alone in it (job_program.cpp) or with a
// shell that knows job control.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/time.h"
#include "tests/support/temporary_folder.h"

namespace headroom::job {
namespace {

using ::testing::HasSubstr;

// A person's terminal with one program in it.
class Screen {
 public:
  explicit Screen(std::vector<std::string> command) {
    ours_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ::grantpt(ours_);
    ::unlockpt(ours_);
    resize(24, 80);
    theirs_ = ::open(::ptsname(ours_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    before_ = modes();
    pid_ = ::fork();
    if (pid_ == 0) become(command);
  }
  ~Screen() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(theirs_);
    ::close(ours_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void type(std::string_view keys) const {
    ASSERT_EQ(::write(ours_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void resize(unsigned short rows, unsigned short columns) const {
    const winsize size{rows, columns, 0, 0};
    ::ioctl(ours_, TIOCSWINSZ, &size);
  }
  // Until this is on the screen, after what was looked for before.
  bool shows(const std::string& text) {
    const auto limit = Clock::now() + std::chrono::seconds(30);
    while (true) {
      if (const std::size_t at = text_.find(text, seen_); at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (Clock::now() > limit || !read()) return false;
    }
  }
  // Everything so far.
  [[nodiscard]] const std::string& text() const { return text_; }
  // The window is closed, the connection lost.
  void hang_up() {
    ::close(std::exchange(theirs_, -1));
    ::close(std::exchange(ours_, -1));
  }
  int exit_code() {
    while (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == 0) read();
    ended_ = true;
    while (read(0)) {
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  // As `stty` tells them.
  [[nodiscard]] termios modes() const {
    termios now{};
    ::tcgetattr(theirs_, &now);
    return now;
  }
  [[nodiscard]] bool is_as_before() const {
    const termios now = modes();
    return now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag &&
           now.c_cflag == before_.c_cflag && now.c_lflag == before_.c_lflag &&
           std::memcmp(now.c_cc, before_.c_cc, sizeof now.c_cc) == 0;
  }
  [[nodiscard]] bool is_raw() const { return (modes().c_lflag & (ICANON | ECHO | ISIG)) == 0; }
  [[nodiscard]] bool becomes_raw() {
    const auto limit = Clock::now() + std::chrono::seconds(30);
    while (!is_raw() && Clock::now() < limit) read(1);
    return is_raw();
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  void become(std::vector<std::string>& command) const {
    ::setsid();
    ::ioctl(theirs_, TIOCSCTTY, 0);
    for (int stream = 0; stream < 3; ++stream) ::dup2(theirs_, stream);
    ::setenv("JOB", JOB_PROGRAM, 1);
    ::setenv("PYTHON", PYTHON, 1);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    ::_exit(127);
  }
  bool read(int patience_ms = 100) {
    pollfd waiting{ours_, POLLIN, 0};
    if (::poll(&waiting, 1, patience_ms) == 0) return patience_ms > 0;
    char bytes[4096];  // NOLINT: filled by read
    const ssize_t got = ::read(ours_, bytes, sizeof bytes);
    if (got > 0) text_.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  }

  int ours_ = -1, theirs_ = -1;
  pid_t pid_ = 0;
  bool ended_ = false;
  int status_ = 0;
  termios before_{};
  std::string text_;
  std::size_t seen_ = 0;
};

std::vector<std::string> job(const std::string& script) {
  return {JOB_PROGRAM, "--", "sh", "-c", script};
}

// A person's shell, which stops and continues jobs.
std::vector<std::string> shell(const std::string& script) {
  return {"sh", "-c", script};
}

TEST(JobInATerminal, SeesATerminalOfTheSameSizeOnAllStreams) {
  Screen screen(job("test -t 0 && test -t 1 && test -t 2 && stty size; exit 3"));
  EXPECT_TRUE(screen.shows("24 80"));
  EXPECT_EQ(screen.exit_code(), 3);
}

TEST(JobInATerminal, ShowsWhatItWritesByteForByte) {
  Screen screen(job("printf '\\033[31mred\\033[0m 10%%\\r 20%%\\nend\\n'"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_EQ(screen.text(), "\033[31mred\033[0m 10%\r 20%\r\nend\r\n");
}

TEST(JobInATerminal, RestoresTheTerminal) {
  Screen screen(job("echo ready; read line; echo got $line"));
  ASSERT_TRUE(screen.shows("ready"));
  EXPECT_TRUE(screen.is_raw());
  screen.type("hello\n");
  EXPECT_TRUE(screen.shows("got hello"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_TRUE(screen.is_as_before());
  EXPECT_THAT(screen.text(), HasSubstr("ready\r\nhello\r\ngot"));  // echoed once
}

TEST(JobInATerminal, GetsANewTerminalSize) {
  Screen screen(job("trap 'stty size; exit 0' WINCH; echo ready; while :; do read x; done"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.resize(50, 132);
  EXPECT_TRUE(screen.shows("50 132"));
  EXPECT_EQ(screen.exit_code(), 0);
}

TEST(JobInATerminal, IsInterruptedOnceByCtrlC) {
  Screen screen(job("trap 'echo one' INT; echo ready; read x; read x; echo $x; exit 9"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.type("\x03");
  ASSERT_TRUE(screen.shows("one"));
  screen.type("\nlast\n");
  EXPECT_EQ(screen.exit_code(), 9);
  EXPECT_EQ(screen.text().find("one"), screen.text().rfind("one"));
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, EndsOnCtrlCLikeACommandWithoutUs) {
  Screen screen(job("echo ready; exec cat"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.type("\x03");
  EXPECT_EQ(screen.exit_code(), 128 + SIGINT);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, SeesTheEndOfInputOnCtrlD) {
  Screen screen(job("echo ready; cat; echo ended"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.type("text\n\x04");
  EXPECT_TRUE(screen.shows("ended"));
  EXPECT_EQ(screen.exit_code(), 0);
}

TEST(JobInATerminal, RestoresTheTerminalAfterASignal) {
  Screen screen(job("echo ready; exec cat"));
  ASSERT_TRUE(screen.shows("ready"));
  ::kill(screen.pid(), SIGTERM);
  EXPECT_EQ(screen.exit_code(), 128 + SIGTERM);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, RestoresTheTerminalAfterAnException) {
  Screen screen({JOB_PROGRAM, "--tick", "0.01", "--throw", "--", "cat"});
  EXPECT_EQ(screen.exit_code(), 70);
  EXPECT_TRUE(screen.is_as_before());
  EXPECT_THAT(screen.text(), HasSubstr("thrown while the job runs\r\n"));
}

TEST(JobInATerminal, RestoresTheTerminalAfterOurOwnCrash) {
  Screen screen({JOB_PROGRAM, "--tick", "0.01", "--crash", "--", "cat"});
  EXPECT_EQ(screen.exit_code(), 128 + SIGABRT);
  EXPECT_TRUE(screen.is_as_before());
}

// ---- Ctrl-Z, fg, bg

TEST(JobInATerminal, StopsOnCtrlZAndContinuesOnFg) {
  Screen screen(
      shell("set -m; $JOB -- sh -c 'echo ready; read x; echo got $x'; "
            "echo shell has $?; stty -a | grep -o -e '-*icanon'; fg; echo over $?"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.type("\x1a");
  ASSERT_TRUE(screen.shows("shell has 148"));  // 128 + SIGTSTP
  ASSERT_TRUE(screen.shows("\nicanon"));
  ASSERT_TRUE(screen.becomes_raw());
  screen.type("more\n");
  EXPECT_TRUE(screen.shows("got more"));
  EXPECT_TRUE(screen.shows("over 0"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, LetsAProgramCleanUpBeforeItStops) {
  Screen screen(
      shell("set -m; $JOB -- sh -c 'trap \"echo tidy\" TSTP; echo ready; "
            "while :; do read x && break; done; echo got $x'; echo shell has $?; fg"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.type("\x1a");
  EXPECT_TRUE(screen.shows("tidy"));
  ASSERT_TRUE(screen.shows("shell has 148"));
  ASSERT_TRUE(screen.becomes_raw());
  screen.type("more\n");
  EXPECT_TRUE(screen.shows("got more"));
  EXPECT_EQ(screen.exit_code(), 0);
}

TEST(JobInATerminal, LeavesTheTerminalAloneInTheBackground) {
  testing::TemporaryFolder folder;
  const std::string gate = folder.path() / "gate";
  Screen screen(
      shell("set -m; mkfifo " + gate + "; $JOB -- sh -c 'echo started; read x < " + gate +
            "; echo ended' & stty -a | grep -o -e '-*icanon'; read line; echo read $line; "
            "echo > " +
            gate + "; wait $!; echo over $?"));
  ASSERT_TRUE(screen.shows("started"));
  EXPECT_FALSE(screen.is_raw());
  screen.type("mine\n");
  EXPECT_TRUE(screen.shows("read mine"));
  EXPECT_TRUE(screen.shows("over 0"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, GetsTheKeysWhenItComesToTheForeground) {
  Screen screen(shell("set -m; $JOB -- sh -c 'read x; echo got $x' & fg; echo over $?"));
  ASSERT_TRUE(screen.becomes_raw());
  screen.type("key\n");
  EXPECT_TRUE(screen.shows("got key"));
  EXPECT_TRUE(screen.shows("over 0"));
  EXPECT_EQ(screen.exit_code(), 0);
}

// The shell's line editor had the terminal when the job was started, and the job got its modes:
// what was typed after `fg` went nowhere, Enter ended no line.
TEST(JobInATerminal, HasTheUsualModesAfterALineEditor) {
  Screen screen(shell(
      "set -m; stty -icanon -echo -icrnl; $JOB -- sh -c 'echo started; read x; echo got $x' & "
      "read go; stty icanon echo icrnl; fg; echo over $?"));
  ASSERT_TRUE(screen.shows("started"));
  screen.type("\n");
  ASSERT_TRUE(screen.becomes_raw());
  screen.type("key\r");
  EXPECT_TRUE(screen.shows("got key"));
  EXPECT_TRUE(screen.shows("over 0"));
  EXPECT_EQ(screen.exit_code(), 0);
}

// ---- Only some streams are terminals

// `seq 500 | headroom run -- less`: the pager asks the terminal of its messages for keys, and got
// neither these nor Ctrl-C.
TEST(JobInATerminal, APagerBehindAPipeGetsKeysAndCtrlC) {
  Screen screen(
      shell("set -m; echo text | $JOB -- $PYTHON -c '\n"
            "import os, signal, sys, termios, tty\n"
            "signal.signal(signal.SIGINT, lambda *_: print(\"struck\", flush=True))\n"
            "keys = open(os.ttyname(2), \"rb\", buffering=0)\n"
            "before = termios.tcgetattr(keys)\n"
            "tty.setcbreak(keys)\n"
            "print(sys.stdin.readline(), flush=True)\n"
            "print(\"then\", keys.read(1).decode(), flush=True)\n"
            "termios.tcsetattr(keys, termios.TCSANOW, before)\n"
            "'; echo over $?"));
  ASSERT_TRUE(screen.shows("text"));
  ASSERT_TRUE(screen.becomes_raw());
  screen.type("\x03");
  ASSERT_TRUE(screen.shows("struck"));
  screen.type("G");
  EXPECT_TRUE(screen.shows("then G"));
  EXPECT_TRUE(screen.shows("over 0"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, LeavesTheTerminalToTheRestOfAPipeline) {
  Screen screen(
      shell("set -m; $JOB -- sh -c 'test -t 0 || echo none; test -t 2 && echo err >&2; "
            "echo ready; read x; echo got $x' | cat; echo over"));
  ASSERT_TRUE(screen.shows("ready\r\n"));
  EXPECT_TRUE(screen.is_as_before());
  EXPECT_THAT(screen.text(), HasSubstr("err\r\n"));
  EXPECT_THAT(screen.text(), ::testing::Not(HasSubstr("none")));
  screen.type("line\n");
  EXPECT_TRUE(screen.shows("got line"));
  EXPECT_TRUE(screen.shows("over"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, EndsWithItsPipelineOnCtrlC) {
  Screen screen(
      shell("set -m; $JOB -- sh -c 'echo ready; exec sleep 1000' | cat; "
            "echo over"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.type("\x03");
  EXPECT_EQ(screen.exit_code(), 128 + SIGINT);
}

TEST(JobInATerminal, ReadsAFileWhileItWritesToTheTerminal) {
  Screen screen(
      shell("set -m; echo text | $JOB -- sh -c 'read x; test -t 1 && stty size <&1; "
            "echo $x; read y < /dev/tty; echo from tty $y'"));
  ASSERT_TRUE(screen.shows("24 80"));
  EXPECT_TRUE(screen.shows("text\r\n"));
  EXPECT_FALSE(screen.is_raw());
  screen.type("keys\n");
  EXPECT_TRUE(screen.shows("from tty keys\r\n"));
  EXPECT_EQ(screen.exit_code(), 0);
  EXPECT_TRUE(screen.is_as_before());
}

TEST(JobInATerminal, GetsAHangupWhenTheTerminalIsGone) {
  const headroom::testing::TemporaryFolder folder;
  const std::string report = (folder.path() / "report").string();
  Screen screen(shell("trap '' HUP; exec $JOB --report " + report +
                      " -- sh -c 'echo ready; while echo x; do :; done 2> /dev/null; exit 5'"));
  ASSERT_TRUE(screen.shows("ready"));
  screen.hang_up();
  EXPECT_EQ(screen.exit_code(), 5);
}

TEST(JobInATerminal, NeedsNoControllingTerminal) {
  Screen screen(shell("setsid -w $JOB -- sh -c 'test -t 1 && echo terminal; exit 4'"));
  EXPECT_TRUE(screen.shows("terminal"));
  EXPECT_EQ(screen.exit_code(), 4);
  EXPECT_TRUE(screen.is_as_before());
}

}  // namespace
}  // namespace headroom::job
