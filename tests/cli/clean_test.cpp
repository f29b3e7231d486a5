// `headroom clean`: explains every holder, frees only Headroom's leftovers, and ends only idle
// processes that it is told to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "headroom/base/process.h"
#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#define NEEDS_OUR_PIDS() \
  if (!pids_are_ours()) GTEST_SKIP() << "process numbers of the driver are not ours here"

// A number that no process has any more.
pid_t dead_pid() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

Json holder_of(const Json& document, pid_t pid) {
  for (const Json& holder : document["holders"])
    if (holder["pid"] == pid) return holder;
  return {};
}

// ---- Explaining ----

TEST(Clean, ExplainsEveryHolderWithEveryKeyOfTheContract) {
  World world;
  world.driver(
      machine({card("24GiB", {process(::getpid(), "9GiB"), process(2'000'000'000, "1GiB")})}));
  const Outcome outcome = world.headroom({"clean", "--stats-only", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const Json json = outcome.json();
  EXPECT_EQ(json["returned_bytes"], 0);
  ASSERT_EQ(json["holders"].size(), 2U);
  for (const Json& holder : json["holders"])
    for (const char* key :
         {"uuid", "pid", "user", "command", "used_bytes", "age_s", "class", "why", "action"})
      EXPECT_TRUE(holder.contains(key)) << key;
  EXPECT_EQ(json["holders"][0]["used_bytes"], 9 * kGiB);
  EXPECT_EQ(json["holders"][1]["class"], "other-namespace");
  EXPECT_TRUE(json["holders"][1]["pid"].is_null());
}

TEST(Clean, TellsRunningStoppedOrphanedAndZombieProcessesApart) {
  NEEDS_OUR_PIDS();
  World world;
  const Holder running(Holder::Kind::child), stopped(Holder::Kind::child),
      orphan(Holder::Kind::orphan), zombie(Holder::Kind::child);
  ::kill(stopped.pid(), SIGSTOP);
  int status = 0;
  ::waitpid(stopped.pid(), &status, WUNTRACED);
  ::kill(zombie.pid(), SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(zombie.pid()), &info, WEXITED | WNOWAIT);
  std::vector<Json> processes;
  for (const pid_t pid : {running.pid(), stopped.pid(), orphan.pid(), zombie.pid()})
    processes.push_back(process(pid, "1GiB"));
  world.driver(machine({card("24GiB", processes)}));
  const Json json = world.headroom({"clean", "--json"}).json();
  EXPECT_EQ(holder_of(json, running.pid())["class"], "running");
  EXPECT_EQ(holder_of(json, stopped.pid())["class"], "stopped");
  EXPECT_EQ(holder_of(json, orphan.pid())["class"], "orphan");
  EXPECT_EQ(holder_of(json, zombie.pid())["class"], "zombie");
  EXPECT_TRUE(running.alive() && orphan.alive()) << "explaining ends no process";
}

TEST(Clean, SaysPlainlyThatItFreesNothingInAnotherProcess) {
  World world;
  world.driver(machine({card("24GiB", {process(::getpid(), "9GiB")})}));
  EXPECT_THAT(world.headroom({"clean"}).out,
              HasSubstr("Clearing in one process frees nothing in another"));
}

TEST(Clean, NamesMemoryThatNoListedProcessOwns) {
  World world;
  Json full = card("24GiB");
  full["used"] = "20GiB";
  world.driver(machine({full}));
  const Json json = world.headroom({"clean", "--json"}).json();
  ASSERT_EQ(json["holders"].size(), 1U);
  EXPECT_EQ(json["holders"][0]["class"], "unattributed");
  EXPECT_EQ(json["holders"][0]["used_bytes"], 20 * kGiB);
}

TEST(Clean, WithoutADriverHoldersAreUnknown) {
  const World world;
  const Outcome outcome = world.headroom({"clean", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.json()["holders"], Json::array());
}

// ---- What is ours ----

class Leftovers : public ::testing::Test {
 protected:
  Leftovers()
      : dead_(
            world_.folder().write("state/a.json." + std::to_string(dead_pid()) + "-0.tmp", "half")),
        living_(
            world_.folder().write("state/b.json." + std::to_string(::getpid()) + "-0.tmp", "x")),
        kept_(world_.folder().write("state/boxes/lab.json", "{}")) {}

  World world_;
  const fs::path dead_, living_, kept_;
};

TEST_F(Leftovers, OfEndedProcessesAreRemovedAndOthersStay) {
  const Outcome outcome = world_.headroom({"clean", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_FALSE(fs::exists(dead_));
  EXPECT_TRUE(fs::exists(living_) && fs::exists(kept_));
  EXPECT_EQ(outcome.json()["returned_bytes"], 4);
  EXPECT_THAT(outcome.err, HasSubstr("removed " + dead_.string()));
}

TEST_F(Leftovers, AreNotTouchedWithStatsOnly) {
  EXPECT_EQ(world_.headroom({"clean", "--stats-only"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(dead_));
}

// They once went before the wrong PID was noticed.
TEST_F(Leftovers, AreNotTouchedWhenThePidIsWrong) {
  const Holder bystander(Holder::Kind::child);
  world_.driver(machine({card("24GiB")}));
  for (const std::string& pid : {std::to_string(bystander.pid()), std::string("0"),
                                 std::string("1"), std::to_string(dead_pid())}) {
    const Outcome outcome = world_.headroom({"clean", "--end", pid});
    EXPECT_EQ(outcome.exit_code, 64) << pid;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err,
                HasSubstr("expected a PID that headroom clean lists, received '" + pid));
  }
  EXPECT_EQ(world_.headroom({"clean", "--end", "all"}).exit_code, 64);
  EXPECT_TRUE(fs::exists(dead_));
  EXPECT_TRUE(bystander.alive());
}

TEST_F(Leftovers, AreNotTouchedByContradictingOptions) {
  for (const Arguments& command :
       {Arguments{"clean", "--stats-only", "--force"}, {"clean", "--stats-only", "--end", "1"}})
    EXPECT_EQ(world_.headroom(command).exit_code, 64);
  EXPECT_TRUE(fs::exists(dead_));
}

TEST(CleanForce, LeavesSharedMemoryWithInvisibleUsersAlone) {
  const World world;
  const std::string loaders = "/dev/shm/torch_" + std::to_string(::getpid()) + "_1_0";
  std::ofstream(loaders) << "in use";
  // In its own PID namespace it sees no other user of /dev/shm, not even this process.
  const Outcome outcome = world.run({"unshare", "--map-root-user", "--pid", "--fork",
                                     "--mount-proc", HEADROOM_BINARY, "clean", "--force"});
  const bool kept = fs::remove(loaders);
  if (outcome.out.empty()) GTEST_SKIP() << "no namespaces here: " << outcome.err;
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(kept);
  EXPECT_THAT(outcome.err, HasSubstr("left shared memory alone"));
}

// ---- Ending ----

// All rules in one run, because each takes the 10 s for which processes are watched.
TEST(CleanEnd, EndsAnIdleOrphanAndSparesBusyProcessesAndJobs) {
  NEEDS_OUR_PIDS();
  World world;
  const Holder idle(Holder::Kind::orphan), with_parent(Holder::Kind::child),
      // Some percent of a core; /proc counts in ticks of 10 ms.
      computing(Holder::Kind::orphan,
                "while :; do i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; sleep 0.1; done"),
      on_the_gpu(Holder::Kind::orphan);
  Json active = process(on_the_gpu.pid(), "1GiB");
  active["sm"] = 35;
  world.driver(
      machine({card("24GiB", {process(idle.pid(), "1GiB"), process(with_parent.pid(), "1GiB"),
                              process(computing.pid(), "1GiB"), active})}));
  Arguments command{"clean", "--json", "--end"};
  for (const Holder* holder : {&idle, &with_parent, &computing, &on_the_gpu})
    command.push_back(std::to_string(holder->pid()));
  const Outcome outcome = world.headroom(command);
  const auto not_ending = [](const Holder& holder, const std::string& why) {
    return HasSubstr("not ending PID " + std::to_string(holder.pid()) + ": " + why);
  };
  EXPECT_EQ(outcome.exit_code, 1) << "some were spared";
  EXPECT_EQ(outcome.json()["holders"].size(), 4U);
  EXPECT_FALSE(idle.alive());
  EXPECT_TRUE(with_parent.alive() && computing.alive() && on_the_gpu.alive());
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("ended PID " + std::to_string(idle.pid())),
                                 not_ending(with_parent, "its parent job is alive"),
                                 not_ending(computing, "it used the CPU"),
                                 not_ending(on_the_gpu, "it kept GPU 0 busy")));
}

TEST(CleanEnd, ReportsTheReturnedMemory) {
  NEEDS_OUR_PIDS();
  World world;
  const Holder idle(Holder::Kind::orphan);
  world.driver(machine({card("24GiB", {process(idle.pid(), "5GiB")})}));
  const std::string pid = std::to_string(idle.pid());
  const auto clean = world.start({"clean", "--json", "--end", pid, "--end", pid});
  ASSERT_TRUE(clean->until_err_has("watching 1 process"))
      << "named twice is named once: " << clean->err();
  world.driver(machine({card("24GiB")}));
  const Outcome outcome = clean->wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_FALSE(idle.alive());
  EXPECT_EQ(outcome.json()["returned_bytes"], 5 * kGiB);
}

TEST(CleanEnd, EndsNoProcessAfterCtrlC) {
  NEEDS_OUR_PIDS();
  World world;
  const Holder idle(Holder::Kind::orphan);
  world.driver(machine({card("24GiB", {process(idle.pid(), "5GiB")})}));
  const auto clean = world.start({"clean", "--end", std::to_string(idle.pid())});
  ASSERT_TRUE(clean->until_err_has("watching")) << clean->err();
  clean->signal(SIGINT);
  EXPECT_EQ(clean->wait().exit_code, 130);
  EXPECT_TRUE(idle.alive());
}

}  // namespace
}  // namespace headroom::testing
