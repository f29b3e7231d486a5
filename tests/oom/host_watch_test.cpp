#include "headroom/oom/host_watch.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace headroom::oom {
namespace {

// A machine of files.
class Machine {
 public:
  void write(const std::string& path, const std::string& content,
             std::ios::openmode mode = std::ios::trunc) const {
    const auto file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::out | mode) << content;
  }
  void first_pid_namespace() const {
    std::filesystem::create_directories(folder_.path() / "proc/self/ns");
    std::filesystem::create_symlink("pid:[4026531836]", folder_.path() / "proc/self/ns/pid");
  }
  [[nodiscard]] const std::filesystem::path& root() const { return folder_.path(); }

 private:
  headroom::testing::TemporaryFolder folder_;
};

TEST(HostWatch, CountsKillsInOurGroup) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/user.slice/job.scope\n");
  const std::string events = "sys/fs/cgroup/user.slice/job.scope/memory.events";
  machine.write(events, "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 0\n");
  const HostWatch watch(machine.root());
  EXPECT_EQ(watch.since({}).kills_in_group, 0);
  machine.write(events, "low 0\nhigh 0\nmax 9\noom 2\noom_kill 5\noom_group_kill 0\n");
  EXPECT_EQ(watch.since({}).kills_in_group, 3);
}

TEST(HostWatch, KnowsGroupsOfVersionOne) {
  const Machine machine;
  machine.write("proc/self/cgroup", "9:cpu,cpuacct:/\n4:memory:/slurm/job_12\n0::/\n");
  const std::string control = "sys/fs/cgroup/memory/slurm/job_12/memory.oom_control";
  machine.write(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  const HostWatch watch(machine.root());
  machine.write(control, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_EQ(watch.since({}).kills_in_group, 1);
}

// The view of a container: its own group is the root of the mounted tree.
TEST(HostWatch, FindsOurGroupInAContainer) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/../../pod12/main\n");
  machine.write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
  const HostWatch watch(machine.root());
  machine.write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  EXPECT_EQ(watch.since({}).kills_in_group, 1);
}

TEST(HostWatch, CountsKillsOnTheMachine) {
  const Machine machine;
  machine.write("proc/vmstat", "nr_free_pages 1\noom_kill 4\n");
  const HostWatch watch(machine.root());
  machine.write("proc/vmstat", "nr_free_pages 1\noom_kill 6\n");
  EXPECT_EQ(watch.since({}).kills_on_machine, 2);
}

TEST(HostWatch, FindsTheKernelsLineOfOurProcess) {
  const Machine machine;
  machine.first_pid_namespace();
  machine.write("dev/kmsg", "3,1,1,-;Out of memory: Killed process 12 (python3) total-vm:1kB\n");
  const HostWatch watch(machine.root());
  EXPECT_EQ(watch.since({12}).kernel_line, "") << "it happened before";
  machine.write("dev/kmsg",
                "3,2,2,-;Out of memory: Killed process 120 (other) total-vm:1kB\n"
                "6,3,3,-;oom-kill:constraint=CONSTRAINT_NONE,task=python3,pid=12,uid=0\n",
                std::ios::app);
  EXPECT_EQ(watch.since({12}).kernel_line,
            "oom-kill:constraint=CONSTRAINT_NONE,task=python3,pid=12,uid=0");
  EXPECT_EQ(watch.since({13}).kernel_line, "");
}

// The log may be long; the kernel counts first.
TEST(HostWatch, TheKernelsLogIsReadOnlyAfterAKill) {
  const Machine machine;
  machine.first_pid_namespace();
  machine.write("proc/vmstat", "oom_kill 4\n");
  machine.write("dev/kmsg", "");
  const HostWatch watch(machine.root());
  const std::string line = "Out of memory: Killed process 12 (python3) total-vm:1kB";
  machine.write("dev/kmsg", "3,1,1,-;" + line + "\n");
  EXPECT_EQ(watch.since({12}).kernel_line, "");
  machine.write("proc/vmstat", "oom_kill 5\n");
  EXPECT_EQ(watch.since({12}).kernel_line, line);
}

TEST(HostWatch, ARecreatedGroupCountsFromZero) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/job\n");
  machine.write("sys/fs/cgroup/job/memory.events", "oom_kill 7\n");
  const HostWatch watch(machine.root());
  machine.write("sys/fs/cgroup/job/memory.events", "oom_kill 1\n");
  EXPECT_EQ(watch.since({}).kills_in_group, 0) << "unknown; never a negative number";
}

TEST(HostWatch, IgnoresPidsOfAnotherNamespace) {
  const Machine machine;
  machine.write("dev/kmsg", "");
  const HostWatch watch(machine.root());
  machine.write("dev/kmsg", "3,1,1,-;Killed process 12 (python3) total-vm:1kB\n");
  EXPECT_EQ(watch.since({12}).kernel_line, "");
}

TEST(HostWatch, KnowsNothingWithoutCounters) {
  const Machine machine;
  const HostWatch watch(machine.root());
  const HostKills pressure = watch.since({1});
  EXPECT_FALSE(pressure.kills_in_group || pressure.kills_on_machine);
}

TEST(HostWatch, GarbageIsNotKnown) {
  const Machine machine;
  machine.write("proc/self/cgroup", "::\n\n0::\nx:memory\n0:memory:relative\n");
  machine.write("proc/vmstat", "oom_kill many\noom_kill\n");
  const HostWatch watch(machine.root());
  EXPECT_FALSE(watch.since({}).kills_on_machine);
}

TEST(HostWatch, WorksOnThisMachine) {
  const HostWatch watch;
  EXPECT_EQ(watch.since({1}).kills_in_group.value_or(0), 0);
}

}  // namespace
}  // namespace headroom::oom
