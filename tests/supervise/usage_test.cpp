// What a job was seen to use, of its cards and of the host, and when it did nothing any more.

#include "headroom/supervise/usage.h"

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

TEST(Usage, TellsTheJobsShareFromThatOfOthers) {
  Usage usage({busy()});
  usage.note(machine(9_GiB), {kTrainer});
  ASSERT_EQ(usage.samples().size(), 1u);
  ASSERT_EQ(usage.samples()[0].cards.size(), 1u) << "the other card is not the job's";
  EXPECT_EQ(usage.samples()[0].cards[0].by_job, 9_GiB);
  EXPECT_EQ(usage.samples()[0].cards[0].by_others(), 1_GiB);
}

TEST(Usage, ProcessesThatAreNotTheJobsCountAsOthers) {
  Usage usage({busy()});
  usage.note(machine(9_GiB), {kTrainer + 1});
  EXPECT_EQ(usage.samples()[0].cards[0].by_job, 0_B);
  EXPECT_FALSE(usage.card_peak());
}

TEST(Usage, KeepsThePeakWhenSamplesAreForgotten) {
  Usage usage({busy()}, 2);
  for (const Bytes used : {3_GiB, 8_GiB, 2_GiB, 1_GiB}) usage.note(machine(used), {kTrainer});
  EXPECT_EQ(usage.samples().size(), 2u);
  EXPECT_EQ(usage.card_peak(), 8_GiB);
}

TEST(Usage, ASampleThatIsTooOldIsNone) {
  gpu::Machine old = machine(9_GiB);
  old.cards[0].sampled = Clock::now() - std::chrono::seconds(10);
  Usage usage({busy()});
  usage.note(old, {kTrainer});
  EXPECT_TRUE(usage.samples()[0].cards.empty());
}

// ---- The host ----

TEST(HostUse, CountsWhatIsResidentAgainstTheTightestLimit) {
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

TEST(HostUse, KnowsThisProcess) {
  const HostUse use = host_use({::getpid()});
  EXPECT_GT(use.peak, 100_KiB);
  ASSERT_TRUE(use.limit);
  EXPECT_GT(*use.limit, use.peak);
}

// ---- Doing nothing ----

constexpr Seconds kMinute{60};

Clock::time_point after(Clock::time_point start, double seconds) {
  return start + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

TEST(Stall, ASilentJobWithIdleCardsIsToldOnce) {
  const auto start = Clock::now();
  Stall stall(kMinute, start);
  Usage usage({busy()});
  usage.note(machine(9_GiB, 0), {kTrainer});
  EXPECT_FALSE(stall.look(start, usage, {}, after(start, 59)));
  const auto sentence = stall.look(start, usage, {}, after(start, 61));
  ASSERT_TRUE(sentence);
  EXPECT_NE(sentence->find("its cards have done nothing"), std::string::npos) << *sentence;
  EXPECT_FALSE(stall.look(start, usage, {}, after(start, 300)));
}

TEST(Stall, OutputEndsItAndTheNextOneIsToldAgain) {
  const auto start = Clock::now();
  Stall stall(kMinute, start);
  Usage usage({busy()});
  usage.note(machine(9_GiB, 0), {kTrainer});
  EXPECT_TRUE(stall.look(start, usage, {}, after(start, 61)));
  EXPECT_FALSE(stall.look(after(start, 62), usage, {}, after(start, 63)));
  EXPECT_TRUE(stall.look(after(start, 62), usage, {}, after(start, 123)));
}

TEST(Stall, ABusyCardIsNoStall) {
  const auto start = Clock::now() - std::chrono::hours(1);
  Stall stall(kMinute, start);
  Usage usage({busy()});
  usage.note(machine(9_GiB, 37), {kTrainer});
  EXPECT_FALSE(stall.look(start, usage, {}));
}

TEST(Stall, WithoutCardsTheProcessorsWorkCounts) {
  const auto start = Clock::now();
  Stall stall(kMinute, start);
  Usage usage({});
  usage.note({}, {});
  const ProcessTable processes;
  while (processes.stat(::getpid())->cpu_ticks == 0) {  // a tick is 10 ms of work
  }
  EXPECT_FALSE(stall.look(start, usage, {::getpid()}, after(start, 61))) << "it has worked";
  EXPECT_TRUE(stall.look(start, usage, {}, after(start, 200)) ||
              stall.look(start, usage, {}, after(start, 300)));
}

TEST(Stall, NobodyAskedForIt) {
  Stall stall({});
  EXPECT_FALSE(stall.look(Clock::now() - std::chrono::hours(9), Usage({}), {}));
}

}  // namespace
}  // namespace headroom::supervise
