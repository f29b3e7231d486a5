// A command below a Job behaves as it does without one. Shell scripts set the scene; $JOB is a
// program that is nothing but a Job (job_program.cpp).

#include "headroom/job/job.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "tests/support/temporary_folder.h"

namespace headroom::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr Seconds kGenerous{60};

class JobProcess : public ::testing::Test {
 protected:
  // `script` in a folder of its own.
  CommandResult shell(const std::string& script) {
    return run_command({"sh", "-c", "cd '" + folder_.path().string() + "'; " + script}, kGenerous,
                       {std::string("JOB=") + JOB_PROGRAM, std::string("PYTHON=") + PYTHON});
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    return read_file(folder_.path() / name).value_or("(no file)");
  }
  // The report that `$JOB --report report` wrote.
  [[nodiscard]] Json report() const { return Json::parse(text("report")); }

  testing::TemporaryFolder folder_;
};

// ---- How it ends

TEST_F(JobProcess, EndsWithTheCommandsOwnExitCode) {
  EXPECT_EQ(shell("$JOB -- sh -c 'exit 7'").exit_code, 7);
  EXPECT_EQ(shell("$JOB -- true").exit_code, 0);
}

TEST_F(JobProcess, ReportsTheSignalThatEndedTheCommand) {
  EXPECT_EQ(shell("$JOB --report report -- sh -c 'kill -SEGV $$'").exit_code, 128 + SIGSEGV);
  EXPECT_EQ(report()["signal"], SIGSEGV);
  EXPECT_EQ(report()["received"], 0);
}

TEST_F(JobProcess, Returns127ForAMissingCommand) {
  EXPECT_EQ(shell("$JOB --report report -- no-such-command").exit_code, 127);
  EXPECT_EQ(report()["started"], false);
  EXPECT_EQ(report()["not_started"], "No such file or directory");
}

TEST_F(JobProcess, Returns126ForAFileThatCannotBeExecuted) {
  folder_.write("data.txt", "1 2 3\n");
  EXPECT_EQ(shell("$JOB --report report -- ./data.txt").exit_code, 126);
  EXPECT_EQ(report()["not_started"], "Permission denied");
}

// ---- What passes through

constexpr const char* kRandom = "head -c 10000000 /dev/urandom > sent; ";

TEST_F(JobProcess, PassesOutputByteForByte) {
  EXPECT_EQ(shell(std::string(kRandom) + "$JOB -- cat sent | cmp - sent").exit_code, 0);
  EXPECT_EQ(shell("$JOB -- cat sent > got; cmp got sent").exit_code, 0);
}

TEST_F(JobProcess, PassesErrorsByteForByte) {
  const std::string script = "$JOB -- sh -c 'cat sent >&2; echo out' 2> got > out; cmp got sent";
  EXPECT_EQ(shell(kRandom + script).exit_code, 0);
  EXPECT_EQ(text("out"), "out\n");
}

TEST_F(JobProcess, PassesInputByteForByte) {
  EXPECT_EQ(shell(std::string(kRandom) + "cat sent | $JOB -- cat | cmp - sent").exit_code, 0);
  EXPECT_EQ(shell("$JOB -- cat < sent | cmp - sent").exit_code, 0);
}

TEST_F(JobProcess, KeepsTheOrderOfTwoStreamsToOneFile) {
  const std::string writes =
      "i=0; while [ $i -lt 1000 ]; do echo $i; i=$((i+1)); echo $i >&2; "
      "i=$((i+1)); done";
  EXPECT_EQ(shell("$JOB -- sh -c '" + writes + "' > got 2>&1; seq 0 999 | cmp - got").exit_code, 0);
}

TEST_F(JobProcess, SendsOutputToOurErrorsIfAsked) {
  EXPECT_EQ(shell("$JOB --to-error -- echo hello 2> err").out, "");
  EXPECT_EQ(text("err"), "hello\n");
}

TEST_F(JobProcess, WaitsForASlowReaderInLittleMemory) {
  const std::string slow = "(read first; echo $first; wc -c)";
  const CommandResult result =
      shell("$JOB --report report -- sh -c 'echo first; head -c 100000000 /dev/zero' | " + slow);
  EXPECT_EQ(result.out, "first\n100000000\n");
  EXPECT_LT(report()["peak_kib"], 30 * 1024);
}

TEST_F(JobProcess, GivesTheCommandSigpipeWhenOurReaderIsGone) {
  EXPECT_EQ(shell("($JOB --report report -- yes; echo $? > code) | head -n 2").out, "y\ny\n");
  EXPECT_EQ(text("code"), std::to_string(128 + SIGPIPE) + "\n");
  EXPECT_EQ(report()["unwritten_errno"], 0);
}

TEST_F(JobProcess, LetsACommandRunOnWhenTheDiskIsFull) {
  EXPECT_EQ(shell("$JOB --report report -- sh -c 'seq 1 100000 && exit 3' > /dev/full").exit_code,
            3);
  EXPECT_EQ(report()["unwritten_errno"], ENOSPC);
  EXPECT_EQ(report()["unwritten_bytes"], 588895);  // seq 1 100000 | wc -c
}

TEST_F(JobProcess, SurvivesALimitOnFileSizes) {
  EXPECT_EQ(shell("ulimit -f 1; $JOB -- sh -c 'head -c 100000 /dev/zero; exit 4' > f").exit_code,
            4);
}

TEST_F(JobProcess, LeavesClosedStreamsClosed) {
  const std::string look =
      "-c 'import os\nfor i in 0, 1, 2:\n try: os.fstat(i)\n except OSError: "
      "open(\"closed\", \"a\").write(str(i))'";
  EXPECT_EQ(shell("$JOB -- \"$PYTHON\" -S " + look + " <&- >&- 2>&-").exit_code, 0);
  EXPECT_EQ(text("closed"), "012");
}

TEST_F(JobProcess, LosesNothingOnANonBlockingPipe) {
  const std::string unblocked =
      "\"$PYTHON\" -S -c 'import os, sys; os.set_blocking(1, False); os.execv(sys.argv[1], "
      "sys.argv[1:])' $JOB -- seq 1 1000000 | cat | tail -n 1";
  EXPECT_EQ(shell(unblocked).out, "1000000\n");
}

// ---- What the command gets

TEST_F(JobProcess, GivesTheCommandNoAdditionalDescriptors) {
  const std::string list = "ls /proc/self/fd";
  const std::string script = list + " > bare 7< /dev/null; $JOB -- " + list + " 7< /dev/null > got";
  shell(script + "; cat bare got");
  EXPECT_EQ(text("got"), text("bare"));
  EXPECT_THAT(text("got"), HasSubstr("7\n"));
}

TEST_F(JobProcess, GivesTheCommandTheSignalsItWouldHaveWithoutUs) {
  for (const char* before : {"", "trap '' HUP PIPE TSTP CHLD; "}) {
    // The lower half: a sanitizer changes real-time signals.
    shell(std::string(before) +
          "grep ^Sig /proc/self/status | grep -v SigQ | cut -c1-8,17- > bare; "
          "$JOB -- grep ^Sig /proc/self/status | grep -v SigQ | cut -c1-8,17- > got");
    EXPECT_EQ(text("got"), text("bare")) << before;
    EXPECT_THAT(text("got"), HasSubstr("SigBlk:\t00000000"));
  }
}

// ---- Signals

// The command says when it is ready; then the signal comes.
std::string with_signal(const std::string& signal, const std::string& command) {
  return "mkfifo ready; $JOB --report report -- sh -c '" + command +
         "' > out & read line < ready; kill -" + signal + " $!; wait $!";
}

// A shell looks at its traps between commands. One that opens a FIFO instead waits for ever if the
// signal comes just before it does.
constexpr const char* kUntilSignalled = "while :; do sleep 0.1; done";

TEST_F(JobProcess, PassesASignalToTheWholeGroup) {
  const std::string child =
      std::string("(trap \"echo child; exit\" TERM; echo > both; ") + kUntilSignalled + ") & ";
  const std::string command = "mkfifo both; " + child +
                              "trap \"wait; echo command; exit 5\" TERM; read x < both; "
                              "echo > ready; wait";
  EXPECT_EQ(shell(with_signal("TERM", command)).exit_code, 5);
  EXPECT_EQ(text("out"), "child\ncommand\n");
  EXPECT_EQ(report()["received"], SIGTERM);
}

TEST_F(JobProcess, PassesOnSignalsThatDoNotEndAProcess) {
  const std::string command =
      std::string("trap \"echo got it; exit 0\" USR1; echo > ready; ") + kUntilSignalled;
  EXPECT_EQ(shell(with_signal("USR1", command)).exit_code, 0);
  EXPECT_EQ(text("out"), "got it\n");
  EXPECT_EQ(report()["received"], 0);
}

// Two FIFOs: a reader that opens the same one again can meet the first writer before it closes, and
// reads the end of the file.
TEST_F(JobProcess, RunsOnIfTheCommandSurvivesASignal) {
  const std::string command =
      std::string("trap \"n=x\\$n; [ \\$n != xx ] || exit 6; echo > again\" TERM; echo > ready; ") +
      kUntilSignalled;
  const std::string script = "mkfifo ready again; $JOB -- sh -c '" + command +
                             "' & read line < ready; kill -TERM $!; read line < again; "
                             "kill -TERM $!; wait $!";
  EXPECT_EQ(shell(script).exit_code, 6);
}

// ---- In this process

// Keeps output of the job apart from output of the test program.
class Silenced {
 public:
  Silenced()
      : out_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)),
        err_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::close(nowhere);
  }
  ~Silenced() {
    ::dup2(out_, STDOUT_FILENO);
    ::dup2(err_, STDERR_FILENO);
    ::close(out_);
    ::close(err_);
  }
  Silenced(const Silenced&) = delete;
  Silenced& operator=(const Silenced&) = delete;

 private:
  int out_, err_;
};

class JobHere : public ::testing::Test {
 protected:
  JobEnd run(const std::string& script, Launch launch = {}) {
    launch.command = {"sh", "-c", "cd '" + folder_.path().string() + "'; " + script};
    launch.environment.push_back(std::string("PYTHON=") + PYTHON);
    const Silenced silenced;
    return Job(launch).run(Seconds(0), {});
  }
  // No process of the folder is left, not even as a zombie.
  static bool no_child_is_left() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

  testing::TemporaryFolder folder_;
};

TEST_F(JobHere, KeepsTheEndOfTheOutput) {
  const JobEnd end = run("seq 1 100000 >&2; echo last");
  EXPECT_EQ(end.last_output.size(), 256U * 1024);
  EXPECT_TRUE(end.last_output.ends_with("99999\n100000\nlast\n"));
}

TEST_F(JobHere, AddsTheGivenVariablesToOurs) {
  ::setenv("HEADROOM_TEST_KEPT", "kept", 1);
  ::setenv("HEADROOM_TEST_CHANGED", "old", 1);
  const JobEnd end = run("echo $HEADROOM_TEST_KEPT $HEADROOM_TEST_CHANGED $HEADROOM_TEST_NEW",
                         {.environment = {"HEADROOM_TEST_CHANGED=new", "HEADROOM_TEST_NEW=2"}});
  EXPECT_EQ(end.last_output, "kept new 2\n");
}

TEST_F(JobHere, KeepsAnInheritedDescriptorOpen) {
  const auto path = folder_.write("lease", "held");
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::string show = "cat <&" + std::to_string(file);
  EXPECT_EQ(run(show, {.inherited = {file}}).last_output, "held");
  EXPECT_NE(run(show).exit_code, 0);
  ::close(file);
}

TEST_F(JobHere, EndsTheRestOfTheTree) {
  const std::string detached =
      "import os, sys\n"
      "if os.fork(): sys.exit()\n"
      "os.setsid()\n"
      "if os.fork(): os._exit(0)\n"
      "os.execvp(\"sleep\", [\"sleep\", \"4711\"])\n";
  const auto daemon = folder_.write("daemon.py", detached);
  const JobEnd end = run("\"$PYTHON\" -S daemon.py; setsid sleep 4712 & exit 3");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_THAT(end.ended_rest, UnorderedElementsAre("sleep 4711", "sleep 4712"));
  EXPECT_THAT(end.stuck, IsEmpty());
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(JobHere, KillsAProcessThatIgnoresSigterm) {
  const JobEnd end = run("(trap '' TERM; while :; do sleep 4713; done) & exit 0");
  EXPECT_THAT(end.ended_rest, ::testing::Not(IsEmpty()));
  EXPECT_TRUE(no_child_is_left());
}

// When a process ends, its children become ours. That happens 200 times while this tree ends.
TEST_F(JobHere, EndsEveryProcessOfADeepTree) {
  folder_.write("storey", "[ $1 = 0 ] && exec sleep 4718\nsh storey $(($1 - 1)) & wait\n");
  const JobEnd end = run("for i in 1 2 3 4 5 6 7 8 9 10; do sh storey 20 & done; exit 0");
  EXPECT_THAT(end.ended_rest, ::testing::Not(IsEmpty()));
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(JobHere, WaitsForProcessesThatEndByThemselves) {
  const JobEnd end =
      run("mkfifo gate; (read x < gate; echo done) & setsid sh -c 'echo > gate' & exit 0");
  EXPECT_EQ(end.last_output, "done\n");
  EXPECT_THAT(end.ended_rest, IsEmpty());
}

TEST_F(JobHere, LeavesAnEarlierChildAlone) {
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    ::setpgid(0, 0);
    ::execlp("sleep", "sleep", "4714", nullptr);
    ::_exit(127);
  }
  EXPECT_THAT(run("setsid sleep 4715 & exit 0").ended_rest, ElementsAre("sleep 4715"));
  EXPECT_EQ(::waitpid(stranger, nullptr, WNOHANG), 0);
  ::kill(stranger, SIGKILL);
  EXPECT_EQ(::waitpid(stranger, nullptr, 0), stranger);
}

// As torchrun starts its ranks: each in a session of its own.
TEST_F(JobHere, KnowsAndEndsTheRanksOfALauncher) {
  folder_.write("launcher.py",
                "import subprocess\n"
                "ranks = [subprocess.Popen(['sleep', '4716'], start_new_session=True) "
                "for rank in range(3)]\n"
                "for rank in ranks: rank.wait()\n");
  Job job({.command = {PYTHON, "-S", folder_.path() / "launcher.py"}});
  std::size_t most = 0;
  const JobEnd end = job.run(Seconds(0.01), [&](const Job& running) {
    const std::vector<pid_t> pids = running.pids();
    if (pids.size() <= most) return;
    EXPECT_EQ(pids.front(), running.pid());
    most = pids.size();
    if (most == 4) job.end();
  });
  EXPECT_EQ(most, 4U);
  EXPECT_EQ(end.signal, SIGTERM);
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(JobHere, EndsTheJobWhenTheCallerThrows) {
  Job job({.command = {"sleep", "4717"}});
  EXPECT_THROW(job.run(Seconds(0.01), [](const Job&) { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_TRUE(no_child_is_left());
  EXPECT_THAT(job.pids(), IsEmpty());
}

TEST_F(JobHere, RestoresSignalHandlers) {
  const auto handler_of = [](int signal) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    return action.sa_handler;
  };
  ::signal(SIGUSR1, SIG_IGN);
  run("exit 0");
  EXPECT_EQ(handler_of(SIGUSR1), SIG_IGN);
  ::signal(SIGUSR1, SIG_DFL);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE, SIGTTOU, SIGWINCH, SIGCONT})
    EXPECT_EQ(handler_of(signal), SIG_DFL) << signal;
}

TEST_F(JobHere, NeverCallsEachForAnIntervalOfZero) {
  Job job({.command = {"true"}});
  job.run(Seconds(0), [](const Job&) { ADD_FAILURE(); });
}

TEST(Job, NeedsACommand) {
  EXPECT_THROW(Job({}), UsageError);
}

}  // namespace
}  // namespace headroom::job
