#include "headroom/base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

using headroom::testing::TemporaryFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A made-up /proc, in which tests say which processes live.
class FakeProc {
 public:
  FakeProc() { folder_.write("stat", "cpu  1 2 3\nbtime 1700000000\nprocesses 5\n"); }

  void add(pid_t pid, const std::string& name, char state, pid_t parent, long long start_ticks,
           const std::string& command = "") const {
    // The fields of proc(5): 14 and 15 are CPU time, 22 the start.
    const std::string stat = std::to_string(pid) + " (" + name + ") " + state + " " +
                             std::to_string(parent) +
                             " 1 1 0 -1 4194560 1 2 3 4 70 30 0 0 20 0 1 0 " +
                             std::to_string(start_ticks) + " 1000000 250 18446744073709551615\n";
    const std::string at = std::to_string(pid);
    folder_.write(at + "/stat", stat);
    folder_.write(at + "/comm", name + "\n");
    folder_.write(at + "/cmdline", command);
  }

  [[nodiscard]] ProcessTable table() const { return ProcessTable(folder_.path()); }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

  [[nodiscard]] std::string command_of(pid_t pid) const {
    const auto stat = table().stat(pid);
    const auto facts = stat ? table().facts(*stat) : std::nullopt;
    return facts ? facts->command : "nobody";
  }

 private:
  TemporaryFolder folder_;
};

// ---- Identity of a process ----

TEST(ProcessStat, ReadsParentStateTimeAndStart) {
  const FakeProc proc;
  proc.add(42, "python", 'S', 7, 123456);
  const auto stat = proc.table().stat(42);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->identity, (ProcessIdentity{42, 123456}));
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->cpu_ticks, 100);
}

class ProcessName : public ::testing::TestWithParam<const char*> {};

TEST_P(ProcessName, DoesNotShiftTheFieldsBehindIt) {
  const FakeProc proc;
  proc.add(42, GetParam(), 'R', 7, 99);
  const auto stat = proc.table().stat(42);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->identity.start_ticks, 99);
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->state, 'R');
}

INSTANTIATE_TEST_SUITE_P(Odd, ProcessName,
                         ::testing::Values("a) Z 1 (b", ")", "(((", "two words", "a\nb", ") R 1 1",
                                           ""));

TEST(ProcessStat, IsEmptyForAnEndedProcessOrAHalfWrittenFile) {
  const FakeProc proc;
  EXPECT_FALSE(proc.table().stat(42));
  EXPECT_FALSE(proc.table().stat(-1));
  for (const char* text : {"", "42", "42 (a", "42 (a)", "42 (a) ", "42 (a) S 1 1"}) {
    proc.folder().write("42/stat", text);
    EXPECT_FALSE(proc.table().stat(42)) << text;
  }
}

TEST(Alive, IsFalseForAReusedNumber) {
  const FakeProc proc;
  proc.add(42, "first", 'S', 1, 100);
  EXPECT_TRUE(proc.table().alive({42, 100}));
  proc.add(42, "second", 'S', 1, 200);
  EXPECT_FALSE(proc.table().alive({42, 100}));
  EXPECT_TRUE(proc.table().alive({42, 200}));
}

TEST(Alive, IsFalseForAZombie) {
  const FakeProc proc;
  for (const char state : {'Z', 'X'}) {
    proc.add(42, "a", state, 1, 100);
    EXPECT_FALSE(proc.table().alive({42, 100})) << state;
  }
  for (const char state : {'R', 'S', 'D', 'T', 't', 'I'}) {
    proc.add(42, "a", state, 1, 100);
    EXPECT_TRUE(proc.table().alive({42, 100})) << state;
  }
}

TEST(Alive, FollowsARealProcessToItsEnd) {
  const ProcessTable processes;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto stat = processes.stat(child);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, ::getpid());
  EXPECT_TRUE(processes.alive(stat->identity));
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(processes.alive(stat->identity)) << "a zombie";
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(processes.stat(child));
}

TEST(ThisProcess, IsAliveAndHasAStart) {
  EXPECT_EQ(this_process().pid, ::getpid());
  EXPECT_GT(this_process().start_ticks, 0);
  EXPECT_TRUE(ProcessTable().alive(this_process()));
}

// ---- Facts about a process ----

TEST(ProcessFacts, JoinTheArgumentsWithBlanks) {
  const FakeProc proc;
  proc.add(42, "python", 'S', 1, 100,
           std::string("python\0train.py\0--lr\0"
                       "1e-3\0",
                       25));
  EXPECT_EQ(proc.command_of(42), "python train.py --lr 1e-3");
}

TEST(ProcessFacts, KeepLineBreaksAndEscapesAwayFromTerminals) {
  const FakeProc proc;
  proc.add(42, "sh", 'S', 1, 100, std::string("sh\0-c\0a\nb\r\x1b[31mred\x7f\0", 20));
  EXPECT_EQ(proc.command_of(42), "sh -c a b  [31mred ");
}

TEST(ProcessFacts, GiveTheNameInBracketsWhereTheCommandIsHidden) {
  const FakeProc proc;
  proc.add(42, "kthreadd", 'S', 0, 100);
  EXPECT_EQ(proc.command_of(42), "[kthreadd]");
  proc.add(43, "emptied", 'S', 0, 100, std::string(8, '\0'));
  EXPECT_EQ(proc.command_of(43), "[emptied]");
}

TEST(ProcessFacts, LeaveOutTheRequestOfOurEngine) {
  const FakeProc proc;
  const std::string end(1, '\0'), request = R"({"preset":"default"})" + end;
  proc.add(42, "headroom-engine", 'S', 1, 100,
           "/opt/bin/headroom-engine" + end + "train" + end + request);
  EXPECT_EQ(proc.command_of(42), "headroom train");
  proc.add(43, "jq", 'S', 1, 100, "jq" + end + "headroom-engine" + end + request);
  EXPECT_EQ(proc.command_of(43), R"(jq headroom-engine {"preset":"default"})");
}

// A process chooses its own name (PR_SET_NAME), which once reached the terminal unchanged.
TEST(ProcessFacts, KeepEscapesInANameAwayFromTerminals) {
  const FakeProc proc;
  proc.add(42, "a\x1b[2Jb\nc", 'Z', 1, 100);
  EXPECT_EQ(proc.command_of(42), "[a [2Jb c]");
}

TEST(ProcessFacts, CountTheStartFromTheBoot) {
  const FakeProc proc;
  const long hertz = ::sysconf(_SC_CLK_TCK);
  proc.add(42, "a", 'S', 1, 60 * hertz);
  const auto facts = proc.table().facts(*proc.table().stat(42));
  ASSERT_TRUE(facts);
  EXPECT_EQ(std::chrono::system_clock::to_time_t(facts->started), 1700000060);
}

TEST(ProcessFacts, NameTheOwner) {
  const auto facts = ProcessTable().facts(*ProcessTable().stat(::getpid()));
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->uid, ::geteuid());
  EXPECT_FALSE(facts->user.empty());
  EXPECT_THAT(facts->command, HasSubstr("core_tests"));
}

TEST(ProcessFacts, AreEmptyForAnEndedProcess) {
  const FakeProc proc;
  EXPECT_FALSE(proc.table().facts(ProcessStat{.identity = {42, 1}}));
}

// ---- The table ----

TEST(ProcessTable, ListsNumbersOnly) {
  const FakeProc proc;
  proc.add(300, "a", 'S', 1, 1);
  proc.add(7, "b", 'S', 1, 1);
  proc.folder().write("self/stat", "");
  EXPECT_THAT(proc.table().all(), ElementsAre(7, 300));
  EXPECT_THAT(ProcessTable().all(), Contains(::getpid()));
}

TEST(ProcessTable, KnowsTheFirstPidNamespaceByItsNumber) {
  const FakeProc proc;
  EXPECT_FALSE(proc.table().in_first_pid_namespace());
  std::filesystem::create_directories(proc.folder().path() / "self/ns");
  const auto link = proc.folder().path() / "self/ns/pid";
  std::filesystem::create_symlink("pid:[4026531836]", link);
  EXPECT_TRUE(proc.table().in_first_pid_namespace());
  std::filesystem::remove(link);
  std::filesystem::create_symlink("pid:[4026532999]", link);
  EXPECT_FALSE(proc.table().in_first_pid_namespace());
}

TEST(ProcessTable, TellsWhoHasTheDriverOpenOrThatItMayNotLook) {
  const FakeProc proc;
  EXPECT_EQ(proc.table().holds_open(42, "/dev/nvidia"), std::nullopt);
  const auto files = proc.folder().path() / "42/fd";
  std::filesystem::create_directories(files);
  std::filesystem::create_symlink("/dev/null", files / "0");
  EXPECT_EQ(proc.table().holds_open(42, "/dev/nvidia"), false);
  std::filesystem::create_symlink("/dev/nvidia0", files / "1");
  EXPECT_EQ(proc.table().holds_open(42, "/dev/nvidia"), true);
}

TEST(ProcessTable, ListsMappedFilesOrThatItMayNotLook) {
  const FakeProc proc;
  EXPECT_EQ(proc.table().mapped(42, "/dev/shm"), std::nullopt);
  proc.folder().write("42/maps",
                      "7f00-7f01 rw-s 00000000 00:17 9    /dev/shm/torch_1_2_3\n"
                      "7f01-7f02 r-xp 00000000 00:17 9    /usr/lib/libc.so.6\n"
                      "7f02-7f03 rw-p 00000000 00:00 0 \n");
  EXPECT_THAT(*proc.table().mapped(42, "/dev/shm"), ElementsAre("/dev/shm/torch_1_2_3"));
}

// ---- Helper commands ----

TEST(RunCommand, GivesOutputAndExitCode) {
  const auto result = run_command({"sh", "-c", "echo out; echo err >&2; exit 7"}, Seconds(20));
  EXPECT_TRUE(result.started);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "out\n");
}

TEST(RunCommand, CountsASignalFrom128) {
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}, Seconds(20)).exit_code, 128 + 9);
}

TEST(RunCommand, SaysThatACommandDoesNotExist) {
  EXPECT_FALSE(run_command({"/no/such/program"}, Seconds(20)).started);
  EXPECT_FALSE(run_command({"no-such-program-in-path"}, Seconds(20)).started);
  EXPECT_FALSE(run_command({}, Seconds(20)).started);
}

TEST(RunCommand, EndsACommandAtItsLimit) {
  const auto begin = Clock::now();
  const auto result = run_command({"sleep", "60"}, Seconds(0.1));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_LT(Clock::now() - begin, Seconds(30));
}

TEST(RunCommand, HoldsTheLimitForACommandThatClosedItsOutput) {
  const auto result = run_command({"sh", "-c", "exec >&-; exec sleep 60"}, Seconds(0.1));
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST(RunCommand, DoesNotWaitForAGrandchildThatKeepsTheOutput) {
  const auto begin = Clock::now();
  const auto result = run_command({"sh", "-c", "sleep 40 & echo $!"}, Seconds(0.2));
  EXPECT_LT(Clock::now() - begin, Seconds(30));
  ASSERT_THAT(result.out, Not(::testing::IsEmpty()));
  ::kill(std::stoi(result.out), SIGKILL);
}

// Reads that came in odd pieces once added up to more.
TEST(RunCommand, KeepsTheFirst64KiB) {
  const auto result = run_command(
      {"sh", "-c", "printf x; sleep 0.05; head -c 300000 /dev/zero | tr '\\0' y"}, Seconds(20));
  EXPECT_EQ(result.exit_code, 0) << "the rest was read, too";
  EXPECT_EQ(result.out, "x" + std::string(64 * 1024 - 1, 'y'));
}

TEST(RunCommand, PutsItsVariablesOverTheEnvironment) {
  ::setenv("HEADROOM_TEST_A", "ours", 1);
  ::setenv("HEADROOM_TEST_AB", "kept", 1);
  const auto result = run_command({"sh", "-c", "echo $HEADROOM_TEST_A $HEADROOM_TEST_AB"},
                                  Seconds(20), {"HEADROOM_TEST_A=theirs"});
  ::unsetenv("HEADROOM_TEST_A");
  ::unsetenv("HEADROOM_TEST_AB");
  EXPECT_EQ(result.out, "theirs kept\n");
}

TEST(RunCommand, GivesTheCommandAnEmptyInput) {
  EXPECT_EQ(run_command({"cat"}, Seconds(20)).exit_code, 0);
}

}  // namespace
}  // namespace headroom
