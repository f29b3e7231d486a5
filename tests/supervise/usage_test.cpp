// The observed use of a job, of its cards and of the host, and the moment when it stalls.

#include "headroom/supervise/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "headroom/base/process.h"
#include "headroom/supervise/stall.h"
#include "tests/support/temporary_folder.h"
#include "tests/watch/machines.h"

namespace headroom::supervise {
namespace {

using namespace headroom::literals;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr pid_t kTrainer = 1234;  // holds 9 GiB of the busy card's 10

gpu::Uuid busy() {
  return headroom::testing::busy_card(Clock::now()).uuid;
}

gpu::Machine machine(Bytes by_trainer, int utilization = 37) {
  gpu::Machine machine = headroom::testing::two_cards(Clock::now());
  machine.cards[0].processes->front().used = by_trainer;
  machine.cards[0].utilization = utilization;
  return machine;
}

// ---- Cards ----

TEST(Usage, SeparatesTheJobsMemoryFromThatOfOthers) {
  Usage usage({busy()});
  usage.note(machine(9_GiB), {kTrainer});
  ASSERT_EQ(usage.samples().size(), 1u);
  ASSERT_EQ(usage.samples()[0].cards.size(), 1u) << "the other card is not the job's";
  EXPECT_EQ(usage.samples()[0].cards[0].by_job, 9_GiB);
  EXPECT_EQ(usage.samples()[0].cards[0].by_others(), 1_GiB);
}

TEST(Usage, ProcessesOutsideTheJobCountAsOthers) {
  Usage usage({busy()});
  usage.note(machine(9_GiB), {kTrainer + 1});
  EXPECT_EQ(usage.samples()[0].cards[0].by_job, 0_B);
  EXPECT_FALSE(usage.card_peak());
}

TEST(Usage, KeepsThePeakWhenSamplesAreDropped) {
  Usage usage({busy()}, 2);
  for (const Bytes used : {3_GiB, 8_GiB, 2_GiB, 1_GiB}) usage.note(machine(used), {kTrainer});
  EXPECT_EQ(usage.samples().size(), 2u);
  EXPECT_EQ(usage.card_peak(), 8_GiB);
}

TEST(Usage, IgnoresAnOldSampleOfACard) {
  gpu::Machine old = machine(9_GiB);
  old.cards[0].sampled = Clock::now() - std::chrono::seconds(10);
  Usage usage({busy()});
  usage.note(old, {kTrainer});
  EXPECT_TRUE(usage.samples()[0].cards.empty());
}

// ---- The host ----

TEST(HostUse, ComparesResidentMemoryWithTheTightestLimit) {
  const TemporaryFolder root;
  root.write("proc/10/status", "Name:\tpython\nVmPeak:\t 9000000 kB\nVmRSS:\t   1024 kB\n");
  root.write("proc/11/status", "VmRSS:\t   2048 kB\n");
  root.write("proc/10/limits",
             "Max address space         unlimited            unlimited   bytes\n");
  root.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");
  root.write("proc/self/cgroup", "0::/user/job\n");
  root.write("sys/fs/cgroup/user/memory.max", "4294967296\n");
  root.write("sys/fs/cgroup/user/job/memory.max", "max\n");
  const HostUse use = host_use({10, 11, 12}, root.path());
  EXPECT_EQ(use.peak, 3_MiB);
  EXPECT_EQ(use.limit, 4_GiB) << "of the group above";
}

TEST(HostUse, AnAddressSpaceLimitComesFirst) {
  const TemporaryFolder root;
  root.write("proc/10/status", "VmPeak:\t 3145728 kB\nVmRSS:\t   1024 kB\n");
  root.write("proc/10/limits",
             "Limit                     Soft Limit           Hard Limit           Units\n"
             "Max address space         4294967296           unlimited            bytes\n");
  root.write("proc/11/status", "VmPeak:\t 1024 kB\nVmRSS:\t 9999999 kB\n");
  const HostUse use = host_use({10, 11}, root.path());
  EXPECT_EQ(use.peak, 3_GiB);
  EXPECT_EQ(use.limit, 4_GiB);
}

TEST(HostUse, ReadsThisProcess) {
  const HostUse use = host_use({::getpid()});
  EXPECT_GT(use.peak, 100_KiB);
  ASSERT_TRUE(use.limit);
  EXPECT_GT(*use.limit, use.peak);
}

// ---- Doing nothing ----

constexpr Seconds kMinute{60};

Clock::time_point after(Clock::time_point start, double delay) {
  return start + std::chrono::duration_cast<Clock::duration>(Seconds(delay));
}

// Looks once a second from `from` to `to`, seconds after the start; all that it said.
class Looker {
 public:
  Looker(bool on_cards, std::vector<pid_t> pids) : usage_({busy()}), pids_(std::move(pids)) {
    if (on_cards) usage_.note(machine(9_GiB, 0), {kTrainer});
  }
  std::vector<std::string> look(double from, double to) {
    std::vector<std::string> said;
    for (double second = from; second <= to; ++second)
      if (auto sentence = stall_.look(output_, usage_, pids_, after(start_, second)))
        said.push_back(*std::move(sentence));
    return said;
  }
  void prints(double when) { output_ = after(start_, when); }

 private:
  Usage usage_;
  std::vector<pid_t> pids_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point output_ = start_;
  Stall stall_{kMinute, start_};
};

TEST(Stall, ASilentJobWithIdleCardsIsReportedOnce) {
  Looker looker(true, {});
  EXPECT_THAT(looker.look(1, 59), IsEmpty());
  EXPECT_THAT(looker.look(60, 300), ElementsAre(HasSubstr("its cards have done nothing")));
}

TEST(Stall, OutputEndsAStallAndTheNextOneIsReported) {
  Looker looker(true, {});
  EXPECT_THAT(looker.look(1, 61), SizeIs(1));
  looker.prints(61.5);
  EXPECT_THAT(looker.look(62, 121), IsEmpty());
  EXPECT_THAT(looker.look(122, 200), SizeIs(1));
}

TEST(Stall, ABusyCardIsNoStall) {
  const auto start = Clock::now() - std::chrono::hours(1);
  Stall stall(Seconds(3), start);
  Usage usage({busy()});
  usage.note(machine(9_GiB, 37), {kTrainer});
  EXPECT_FALSE(stall.look(start, usage, {}));
}

TEST(Stall, TimeWhileWeWereStoppedDoesNotCount) {
  Looker looker(true, {});
  EXPECT_THAT(looker.look(1, 30), IsEmpty());
  EXPECT_THAT(looker.look(4000, 4020), IsEmpty()) << "an hour of Ctrl-Z in between";
  EXPECT_THAT(looker.look(4021, 4030), SizeIs(1));
}

TEST(Stall, CpuTimeCountsAsWorkWithoutCards) {
  Looker looker(false, {::getpid()});
  EXPECT_THAT(looker.look(1, 1), IsEmpty());
  const ProcessTable processes;
  const auto ticks = [&] { return processes.stat(::getpid())->cpu_ticks; };
  EXPECT_THAT(looker.look(2, 40), IsEmpty());
  for (const auto before = ticks(); ticks() == before;) {  // a tick is 10 ms of work
  }
  EXPECT_THAT(looker.look(41, 80), IsEmpty()) << "it has worked";
}

// `--stall 1s --end-stalled -- sleep 30` slept to its end on simulated cards: they tell no
// activity.
TEST(Stall, CpuTimeCountsAsWorkOnSimulatedCards) {
  gpu::Machine simulated = machine(9_GiB);
  simulated.simulated = true;
  Usage usage({busy()});
  usage.note(simulated, {kTrainer});
  const auto start = Clock::now();
  Stall stall(Seconds(3), start);
  for (const double second : {1, 2})
    EXPECT_FALSE(stall.look(start, usage, {}, after(start, second)));
  const auto said = stall.look(start, usage, {}, after(start, 4));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("its processes have done nothing"));
}

TEST(Stall, IsNeverReportedUnlessAskedFor) {
  Stall stall({});
  EXPECT_FALSE(stall.look(Clock::now() - std::chrono::hours(9), Usage({}), {}));
}

}  // namespace
}  // namespace headroom::supervise
