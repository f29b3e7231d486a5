// Holders of memory and the reasons: the usual situations, with real processes where possible, and
// the processes that may be ended.

#include "headroom/gpu/holders.h"

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/contains.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;

constexpr uid_t kNobody = 65534;

// As a source describes it.
GpuProcess listed(const ProcessTable& table, pid_t pid, Bytes used = 1_GiB) {
  const ProcessStat stat = table.stat(pid).value();
  const ProcessFacts facts = table.facts(stat).value();
  GpuProcess process = fixtures::process(pid, used, facts.command);
  process.start_ticks = stat.identity.start_ticks;
  process.user = facts.user;
  process.started = facts.started;
  return process;
}

// A card with these, all bytes accounted for.
Machine machine_with(const std::vector<GpuProcess>& processes) {
  Card used = card(0);
  for (const GpuProcess& process : processes) used.memory->used += process.used.value_or(0_B);
  used.memory->free = used.memory->total - used.memory->used;
  used.processes = processes;
  return machine_of({used});
}

HolderReport report_of(const ProcessTable& table, const GpuProcess& process) {
  return explain_holders(machine_with({process}), table, false).at(0);
}

HolderClass class_of(const ProcessTable& table, pid_t pid) {
  return report_of(table, listed(table, pid)).holder_class;
}

// ---- The situations ----

TEST(Holders, ALivingJobIsRunning) {
  const Child child;
  const ProcessTable table;
  const HolderReport report = report_of(table, listed(table, child.pid(), 3_GiB));
  EXPECT_EQ(report.holder_class, HolderClass::running);
  EXPECT_EQ(report.process, child.identity());
  EXPECT_EQ(report.command, "sleep 1000");
  EXPECT_EQ(report.used, 3_GiB);
  EXPECT_TRUE(report.age > Seconds(-5) && report.age < Seconds(60));
  EXPECT_FALSE(contains(report.action, "--end")) << "no advice to end a living job";
}

TEST(Holders, AStoppedProcessKeepsItsMemory) {
  const Child child;
  ASSERT_TRUE(child.signal_until(SIGSTOP, 'T'));
  const ProcessTable table;
  const HolderReport report = report_of(table, listed(table, child.pid()));
  EXPECT_EQ(report.holder_class, HolderClass::stopped);
  EXPECT_TRUE(contains(report.action, "kill -CONT " + std::to_string(child.pid())));
}

TEST(Holders, AnEndedProcessThatItsParentHasNotReapedIsAZombie) {
  const Child child;
  ASSERT_TRUE(child.signal_until(SIGKILL, 'Z'));
  const ProcessTable table;
  const HolderReport report = report_of(table, listed(table, child.pid()));
  EXPECT_EQ(report.holder_class, HolderClass::zombie);
  EXPECT_TRUE(contains(report.action, "PID " + std::to_string(::getpid()))) << "its parent";
}

TEST(Holders, AProcessWithoutItsParentIsAnOrphan) {
  FakeProc proc;
  proc.add({.pid = 20, .command = "/lib/systemd/systemd --user"});
  proc.add({.pid = 50, .parent = 1, .command = "python train.py"});
  proc.add({.pid = 51, .parent = 20, .command = "python train.py"});
  proc.add({.pid = 52, .parent = 19, .command = "python train.py"});
  for (const pid_t pid : {50, 51, 52}) {
    const HolderReport report = report_of(proc.table(), listed(proc.table(), pid));
    EXPECT_EQ(report.holder_class, HolderClass::orphan) << pid;
    EXPECT_TRUE(contains(report.action, "headroom clean --end " + std::to_string(pid)));
  }
}

// `docker run image python train.py`: PID 1 was called an orphan, and `clean` offered to end it,
// which ends the container.
TEST(Holders, TheFirstProcessOfAContainerIsItsJob) {
  FakeProc proc;
  proc.add({.pid = 1, .parent = 0, .command = "python train.py"});
  proc.add({.pid = 30, .parent = 1, .command = "python loader.py"});
  for (const pid_t pid : {1, 30}) {
    const HolderReport report = report_of(proc.table(), listed(proc.table(), pid));
    EXPECT_EQ(report.holder_class, HolderClass::running) << pid;
    EXPECT_FALSE(contains(report.action, "--end")) << pid;
    const auto stat = proc.table().stat(pid).value();
    EXPECT_TRUE(reason_to_spare(machine_with({}), proc.table(), stat)) << pid;
  }
}

// A process that a keeper adopts has lost its own launcher: `docker run -d image sleep infinity`.
TEST(Holders, AContainersKeeperAdoptsOrphans) {
  for (const char* keeper : {"sleep infinity", "/sbin/init", "bash"}) {
    FakeProc proc;
    proc.add({.pid = 1, .parent = 0, .command = keeper});
    proc.add({.pid = 30, .parent = 1, .command = "python train.py"});
    EXPECT_EQ(class_of(proc.table(), 30), HolderClass::orphan) << keeper;
  }
}

// A shell that starts a job and ends leaves it to the process that adopts orphans here.
TEST(Holders, ARealOrphanIsOne) {
  const CommandResult started =
      run_command({"sh", "-c", "sleep 1000 >/dev/null & echo $!"}, Seconds(10));
  const auto pid = static_cast<pid_t>(std::stol(started.out));
  const ProcessTable table;
  const HolderClass found = class_of(table, pid);
  const pid_t adopter = table.stat(pid).value().parent;
  ::kill(pid, SIGKILL);
  if (adopter != 1) GTEST_SKIP() << "orphans go to PID " << adopter << " here, whatever that is";
  EXPECT_EQ(found, HolderClass::orphan);
}

TEST(Holders, ALaunchersNameIsReadWholeAndNotByItsBeginning) {
  FakeProc proc;
  proc.add({.pid = 20, .command = "/opt/bin/initialise_training --all"});
  proc.add({.pid = 50, .parent = 20, .command = "python train.py"});
  EXPECT_EQ(class_of(proc.table(), 50), HolderClass::running) << "that is not init";
}

TEST(Holders, AProcessOfAnotherUserNamesTheUser) {
  if (::geteuid() == 0) {
    FakeProc proc;
    const auto folder = proc.add({.pid = 50, .command = "python train.py"});
    ASSERT_EQ(::chown(folder.c_str(), kNobody, kNobody), 0);
    const HolderReport report = report_of(proc.table(), listed(proc.table(), 50));
    EXPECT_EQ(report.holder_class, HolderClass::other_user);
    EXPECT_EQ(report.action, "ask " + report.user.value());
  } else {
    const ProcessTable table;
    EXPECT_EQ(class_of(table, 1), HolderClass::other_user);
  }
}

TEST(Holders, AnotherContainersProcessIsNotNamed) {
  const HolderReport report = report_of(ProcessTable(), hidden_process(2_GiB));
  EXPECT_EQ(report.holder_class, HolderClass::other_namespace);
  EXPECT_FALSE(report.process || report.user || report.command || report.age);
  EXPECT_EQ(report.used, 2_GiB);
}

TEST(Holders, AProcessThatEndedMeanwhileIsNotTakenForAnother) {
  Child child;
  const ProcessTable table;
  const GpuProcess process = listed(table, child.pid());
  child.end();
  EXPECT_EQ(report_of(table, process).holder_class, HolderClass::other_namespace);
}

TEST(Holders, AReusedNumberIsNotTheProcessTheDriverNamed) {
  FakeProc proc;
  proc.add({.pid = 50, .command = "python train.py", .start_ticks = 1000});
  const GpuProcess process = listed(proc.table(), 50);
  proc.add({.pid = 50, .command = "vim", .start_ticks = 2000});
  EXPECT_EQ(report_of(proc.table(), process).holder_class, HolderClass::other_namespace);
}

TEST(Holders, TheMpsServerHoldsForItsClients) {
  FakeProc proc;
  proc.add({.pid = 50, .command = "/usr/bin/nvidia-cuda-mps-server"});
  EXPECT_EQ(class_of(proc.table(), 50), HolderClass::mps_server);
}

TEST(Holders, DisplaysAreLeftAlone) {
  FakeProc proc;
  proc.add({.pid = 49, .command = "bash"});
  int pid = 50;
  for (const char* command : {"/usr/lib/xorg/Xorg -core", "/usr/bin/X :0", "/usr/bin/gnome-shell",
                              "/usr/bin/kwin_wayland --drm", "/usr/libexec/gdm-wayland-session"}) {
    proc.add({.pid = ++pid, .parent = 49, .command = command});
    EXPECT_EQ(class_of(proc.table(), pid), HolderClass::display) << command;
  }
  proc.add({.pid = 40, .parent = 49, .command = "firefox"});
  GpuProcess drawing = listed(proc.table(), 40);
  drawing.kind = ProcessKind::graphics;
  EXPECT_EQ(report_of(proc.table(), drawing).holder_class, HolderClass::display);
  proc.add({.pid = 41, .parent = 49, .command = "/opt/Xtrain --fast"});
  EXPECT_EQ(class_of(proc.table(), 41), HolderClass::running) << "X is only its first letter";
}

TEST(Holders, BytesBeyondTheListedProcessesAreUnattributed) {
  Card draining = card(0, 9_GiB);
  const auto empty = explain_holders(machine_of({draining}), ProcessTable(), false);
  ASSERT_EQ(empty.size(), 1u);
  EXPECT_EQ(empty[0].holder_class, HolderClass::unattributed);
  EXPECT_EQ(empty[0].used, 9_GiB);
  EXPECT_FALSE(empty[0].process);
  EXPECT_TRUE(contains(empty[0].why, "no process is listed"));

  draining.processes = {hidden_process(6_GiB)};
  const auto rest = explain_holders(machine_of({draining}), ProcessTable(), false);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].holder_class, HolderClass::unattributed);
  EXPECT_EQ(rest[1].used, 3_GiB);
}

TEST(Holders, NothingIsUnattributedWhileSomethingIsUnknown) {
  Card unknown = card(0, 9_GiB);
  unknown.processes = {hidden_process({})};
  EXPECT_EQ(explain_holders(machine_of({unknown}), ProcessTable(), false).size(), 1u);
  unknown.processes.reset();
  EXPECT_EQ(explain_holders(machine_of({unknown}), ProcessTable(), false).size(), 0u);
  Card rounding = card(0, 63_MiB);
  EXPECT_EQ(explain_holders(machine_of({rounding}), ProcessTable(), false).size(), 0u);
}

TEST(Holders, ASlicesBytesAreNotCountedOnItsCardAgain) {
  std::vector<Card> cards = mig_card(0);
  cards[0].memory = card(0, 3_GiB).memory;
  cards[1].memory = card(0, 3_GiB, 5_GiB).memory;
  const auto reports = explain_holders(machine_of(cards), ProcessTable(), false);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].card, cards[1].uuid);
}

TEST(Holders, ComeCardByCardTheBiggestFirst) {
  Card first = card(0, 6_GiB), second = card(1, 9_GiB);
  first.processes = {hidden_process(1_GiB), hidden_process(3_GiB), hidden_process(2_GiB)};
  second.processes = {hidden_process(9_GiB)};
  std::vector<std::pair<int, Bytes>> order;
  for (const auto& report : explain_holders(machine_of({first, second}), ProcessTable(), false))
    order.emplace_back(report.card_index, report.used.value());
  const std::vector<std::pair<int, Bytes>> expected{{0, 3_GiB}, {0, 2_GiB}, {0, 1_GiB}, {1, 9_GiB}};
  EXPECT_EQ(order, expected);
}

TEST(Holders, ASearchFindsUnlistedProcessesWithTheDriverOpen) {
  FakeProc proc;
  proc.add({.pid = 20, .command = "python train.py", .open_files = {"/dev/nvidia0"}});
  proc.add({.pid = 50, .parent = 1, .command = "python loader", .open_files = {"/dev/nvidiactl"}});
  proc.add({.pid = 51, .parent = 20, .command = "python loader", .open_files = {"/dev/nvidia0"}});
  proc.add({.pid = 52, .parent = 20, .command = "vim", .open_files = {"/dev/null"}});
  const Machine machine = machine_with({listed(proc.table(), 20)});
  EXPECT_EQ(explain_holders(machine, proc.table(), false).size(), 1u);
  const auto reports = explain_holders(machine, proc.table(), true);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[1].holder_class, HolderClass::not_listed);
  EXPECT_EQ(reports[1].process->pid, 50);
  EXPECT_EQ(reports[1].action, "headroom clean --end 50");
  EXPECT_EQ(reports[2].process->pid, 51);
  EXPECT_FALSE(contains(reports[2].action, "--end")) << "its job runs";
}

TEST(Holders, EachClassHasItsName) {
  EXPECT_STREQ(to_string(HolderClass::running), "running");
  EXPECT_STREQ(to_string(HolderClass::other_namespace), "other-namespace");
  EXPECT_STREQ(to_string(HolderClass::unattributed), "unattributed");
}

// ---- Who may be ended ----

// Process 50, listed on a card, as it was seen some seconds before.
class ReasonToSpare : public ::testing::Test {
 protected:
  void add(const InventedProcess& process) { proc_.add(process); }
  [[nodiscard]] std::string reason(std::optional<int> activity = 0) const {
    GpuProcess process = fixtures::process(50, 1_GiB);
    process.activity = activity;
    return reason_to_spare(machine_with({process}), proc_.table(), earlier_).value_or("none");
  }

  FakeProc proc_;
  ProcessStat earlier_{.identity = {50, 1000}, .parent = 1, .state = 'S', .cpu_ticks = 70};
  InventedProcess idle_orphan_{.pid = 50, .parent = 1, .command = "python", .cpu_ticks = 70};
};

TEST_F(ReasonToSpare, IsEmptyForTheUsersOwnIdleOrphan) {
  add(idle_orphan_);
  EXPECT_EQ(reason(), "none");
  EXPECT_EQ(reason({}), "none") << "no driver of a slice tells its activity";
}

TEST_F(ReasonToSpare, IsProgressOnTheCpu) {
  idle_orphan_.cpu_ticks = 71;
  add(idle_orphan_);
  EXPECT_TRUE(contains(reason(), "it used the CPU"));
}

TEST_F(ReasonToSpare, IsActivityOnTheGpu) {
  add(idle_orphan_);
  EXPECT_EQ(reason(1), "it kept GPU 0 busy in the last seconds");
}

TEST_F(ReasonToSpare, IsAnEndOrAReusedNumber) {
  EXPECT_EQ(reason(), "it is gone already");
  idle_orphan_.start_ticks = 2000;
  add(idle_orphan_);
  EXPECT_EQ(reason(), "it is gone already");
}

TEST_F(ReasonToSpare, IsAnotherOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const auto folder = proc_.add(idle_orphan_);
  ASSERT_EQ(::chown(folder.c_str(), kNobody, kNobody), 0);
  EXPECT_TRUE(reason().starts_with("it belongs to "));
}

TEST_F(ReasonToSpare, IsALivingParentJob) {
  idle_orphan_.parent = 20;
  add(idle_orphan_);
  for (const char* launcher :
       {"python train.py", "torchrun --nproc 8 train.py", "/usr/bin/shepherd run", "supervisord",
        "initialise_training", "bash train.sh", "/bin/sh -c python train.py", "sudo-train"}) {
    add({.pid = 20, .parent = 1, .command = launcher});
    EXPECT_TRUE(contains(reason(), "its parent job is alive (PID 20")) << launcher << reason();
  }
}

TEST_F(ReasonToSpare, IsNoShellOrTerminalAboveIt) {
  idle_orphan_.parent = 20;
  add(idle_orphan_);
  for (const char* shell : {"bash", "-bash", "/usr/bin/zsh -l", "fish", "tmux: server",
                            "SCREEN -S x", "sshd: alice@pts/0", "bash --login -i"}) {
    add({.pid = 20, .parent = 1, .command = shell});
    EXPECT_EQ(reason(), "none") << shell;
  }
}

TEST_F(ReasonToSpare, ARealChildOfThisTestIsSpared) {
  const Child child;
  const ProcessTable table;
  const auto why = reason_to_spare(machine_with({listed(table, child.pid())}), table, child.stat());
  EXPECT_TRUE(contains(why.value_or("none"), "its parent job is alive"));
}

}  // namespace
}  // namespace headroom::gpu
