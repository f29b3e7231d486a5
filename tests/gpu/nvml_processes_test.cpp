// Processes as the driver lists them, and lists that are incomplete or wrong.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/nvml_cards.h"
#include "tests/gpu/fixtures/processes.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Version = FakeDriver::Version;

std::string entry(pid_t pid, const std::string& more) {
  return R"({"pid": )" + std::to_string(pid) + ", " + more + "}";
}

TEST(Nvml, AProcessOnBothListsIsThereOnce) {
  const Child child;
  FakeProc proc;
  proc.show(child.pid());
  const std::string both = R"("processes": [)" +
                           entry(child.pid(), R"("used": "1GiB", "kind": "compute+graphics")") +
                           "]";
  const Card seen = look_at(both, "", proc.table());
  ASSERT_EQ(seen.processes->size(), 1u);
  EXPECT_EQ(seen.processes->at(0).kind, ProcessKind::compute);
  EXPECT_EQ(look_at(both, "", FakeProc(FakeProc::Namespace::container).table()).processes->size(),
            1u)
      << "also when it is not to be seen from here";
}

TEST(Nvml, GraphicsProcessesAreMarkedAsSuch) {
  const Child child;
  FakeProc proc;
  proc.show(child.pid());
  const Card card = look_at(
      R"("processes": [)" + entry(child.pid(), R"("used": "1GiB", "kind": "graphics")") + "]", "",
      proc.table());
  EXPECT_EQ(card.processes->at(0).kind, ProcessKind::graphics);
}

// An empty list of drawing processes does not mean that no process computes.
TEST(Nvml, WithoutTheComputeListTheProcessesAreUnknown) {
  const Card card = look_at(R"("processes": [{"pid": 1, "used": "1GiB"}])",
                            fault("nvmlDeviceGetComputeRunningProcesses*", "UNKNOWN"));
  EXPECT_FALSE(card.processes);
  EXPECT_EQ(card.trouble, "Unknown Error");
}

TEST(Nvml, WithoutAGraphicsListTheComputeListIsEnough) {
  const Card card = look_at(R"("processes": [{"pid": 4100001, "used": "1GiB"}],
                               "unsupported": ["nvmlDeviceGetGraphicsRunningProcesses*"])");
  EXPECT_EQ(card.processes->size(), 1u);
  EXPECT_EQ(card.trouble, "");
}

TEST(Nvml, BytesThatAreNotAvailableAreUnknown) {
  for (const Version version : {Version::newest, Version::old}) {
    const Card card =
        look_at(R"("processes": [{"pid": 4100001, "used": null}])", "", ProcessTable(), version);
    ASSERT_EQ(card.processes->size(), 1u);
    EXPECT_EQ(card.processes->at(0).used, std::nullopt);
  }
}

TEST(Nvml, AProcessThatDoesNotExistHereHasNoNumber) {
  const Card card = look_at(R"("processes": [{"pid": 4294967295, "used": "1GiB"},
                                             {"pid": 4100001, "used": "2GiB"}])");
  ASSERT_EQ(card.processes->size(), 2u);
  for (const GpuProcess& process : *card.processes) {
    EXPECT_EQ(process.kind, ProcessKind::other_namespace);
    EXPECT_FALSE(process.pid || process.user || process.command || process.started);
    EXPECT_EQ(process.start_ticks, 0);
  }
  EXPECT_EQ(card.processes->at(1).used, 2_GiB) << "what it holds is known";
}

TEST(Nvml, TwoHundredProcessesAreAllListed) {
  std::string list;
  for (int i = 0; i < 200; ++i)
    list += (i == 0 ? "" : ", ") + entry(4100000 + i, R"("used": "10MiB")");
  for (const Version version : {Version::newest, Version::old}) {
    const Card card = look_at(R"("processes": [)" + list + "]", "", ProcessTable(), version);
    ASSERT_TRUE(card.processes);
    EXPECT_EQ(card.processes->size(), 200u);
    EXPECT_EQ(card.memory->used, 2000_MiB);
  }
}

TEST(Nvml, InAContainerANumberCountsOnlyForAProcessWithTheDriverOpen) {
  FakeProc proc(FakeProc::Namespace::container);
  proc.add({.pid = 50, .command = "python train.py", .open_files = {"/dev/null", "/dev/nvidia0"}});
  proc.add({.pid = 51, .command = "bash", .open_files = {"/dev/null", "/dev/nvme0"}});
  const Card card =
      look_at(R"("processes": [{"pid": 50, "used": "1GiB"}, {"pid": 51, "used": "2GiB"}])", "",
              proc.table());
  ASSERT_EQ(card.processes->size(), 2u);
  EXPECT_EQ(card.processes->at(0).pid, 50);
  EXPECT_EQ(card.processes->at(0).command, "python train.py");
  EXPECT_EQ(card.processes->at(1).pid, std::nullopt);
  EXPECT_EQ(card.processes->at(1).kind, ProcessKind::other_namespace);
  EXPECT_EQ(card.processes->at(1).command, std::nullopt) << "not bash: that is another process";
}

TEST(Nvml, AReusedNumberGetsItsNewOwnersCommand) {
  FakeProc proc;
  const FakeDriver driver(R"({"cards": [{"processes": [{"pid": 50, "used": "1GiB"}]}]})");
  proc.add({.pid = 50, .command = "first", .start_ticks = 1000});
  const auto source = make_nvml_source(proc.table());
  Machine machine = source->open();
  read_all(*source, machine);
  EXPECT_EQ(machine.cards[0].processes->at(0).command, "first");
  proc.add({.pid = 50, .command = "second", .start_ticks = 2000});
  read_all(*source, machine);
  EXPECT_EQ(machine.cards[0].processes->at(0).command, "second");
  EXPECT_EQ(machine.cards[0].processes->at(0).start_ticks, 2000);
}

TEST(Nvml, PeaksComeFromTheDriversAccountsWhereTheyAreKept) {
  FakeProc proc;
  for (const pid_t pid : {50, 51, 52}) proc.add({.pid = pid, .command = "python"});
  const std::string processes =
      R"("processes": [{"pid": 50, "used": "1GiB"}, {"pid": 51, "used": "1GiB"},
                       {"pid": 52, "used": "1GiB"}])";
  const std::string accounts =
      R"("pids": [{"pid": 50, "max_memory": "3GiB"}, {"pid": 51, "max_memory": null}])";
  const auto peaks = [&](const std::string& fields) {
    std::vector<std::optional<Bytes>> all;
    const Card card = look_at(fields, "", proc.table());
    for (const GpuProcess& process : *card.processes) all.push_back(process.peak);
    return all;
  };
  using Peaks = std::vector<std::optional<Bytes>>;
  EXPECT_EQ(peaks(processes + R"(, "accounting": {)" + accounts + "}"), (Peaks{3_GiB, {}, {}}));
  EXPECT_EQ(peaks(processes + R"(, "accounting": {"mode": false, )" + accounts + "}"),
            (Peaks{{}, {}, {}}));
  EXPECT_EQ(peaks(processes), (Peaks{{}, {}, {}}));
}

TEST(Nvml, ActivityIsTheHighestSampleAndNeverInvented) {
  FakeProc proc;
  for (const pid_t pid : {50, 51, 52}) proc.add({.pid = pid, .command = "python"});
  const Card card = look_at(R"("processes": [
      {"pid": 50, "used": "1GiB", "sm": 35}, {"pid": 51, "used": "1GiB"},
      {"pid": 52, "used": "1GiB", "sm": 4000000000}, {"pid": 4100001, "used": "1GiB"}])",
                            "", proc.table());
  ASSERT_EQ(card.processes->size(), 4u);
  EXPECT_EQ(card.processes->at(0).activity, 35);
  EXPECT_EQ(card.processes->at(1).activity, 0) << "the driver sampled others and not this one";
  EXPECT_EQ(card.processes->at(2).activity, std::nullopt) << "no share is 4000000000 percent";
  EXPECT_EQ(card.processes->at(3).activity, std::nullopt) << "which process that is, is unknown";
}

TEST(Nvml, ActivityIsUnknownWhereTheDriverDoesNotTellIt) {
  FakeProc proc;
  proc.add({.pid = 50, .command = "python"});
  const std::string process = R"("processes": [{"pid": 50, "used": "1GiB", "sm": 35}])";
  for (const char* code : {"NOT_SUPPORTED", "UNKNOWN", "NO_PERMISSION"}) {
    const Card card =
        look_at(process, fault("nvmlDeviceGetProcessUtilization", code), proc.table());
    EXPECT_EQ(card.processes->at(0).activity, std::nullopt) << code;
  }
}

// ---- Versions of the function

struct ListVersion {
  const char* driver;
  bool asks_v3;
};

// Early 535 drivers write longer entries from _v3 than the structure that all others fill, so that
// a list read with it would be nonsense from its second entry on; 535.104 is right again.
TEST(Nvml, TheNewestListIsAskedExceptOfDriversThatGetItWrong) {
  for (const ListVersion& version :
       {ListVersion{"580.65.06", true}, ListVersion{"535.104.05", true},
        ListVersion{"535.54.03", false}, ListVersion{"535.43", false},
        ListVersion{"530.30", true}}) {
    const FakeDriver driver(R"({"driver": ")" + std::string(version.driver) +
                            R"(", "cards": [{"processes": [{"pid": 4100001, "used": "1GiB"}]}]})");
    const unsigned long before = driver.calls("nvmlDeviceGetComputeRunningProcesses_v3");
    EXPECT_EQ(look().cards[0].processes->size(), 1u) << version.driver;
    EXPECT_EQ(driver.calls("nvmlDeviceGetComputeRunningProcesses_v3") > before, version.asks_v3)
        << version.driver;
  }
}

}  // namespace
}  // namespace headroom::gpu
