// Cards through a driver, and through one that fails in every way drivers are known to fail
// (tests/fake_nvml/README.md).

#include "headroom/gpu/nvml.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/fake_driver.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/contains.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Version = FakeDriver::Version;

void read_all(CardSource& source, Machine& machine) {
  for (Card& card : machine.cards) {
    source.read_gauges(card);
    source.read_processes(card);
    source.read_activity(card);
  }
}

// Everything the driver tells of the machine now.
Machine look(const ProcessTable& processes = ProcessTable()) {
  const auto source = make_nvml_source(processes);
  Machine machine = source->open();
  read_all(*source, machine);
  return machine;
}

// The only card of such a machine, with `fields` beside its defaults.
Card look_at(const std::string& fields, const std::string& faults = "",
             const ProcessTable& processes = ProcessTable(), Version version = Version::newest) {
  const FakeDriver driver(R"({"cards": [{)" + fields + R"(}], "faults": [)" + faults + "]}",
                          version);
  return look(processes).cards.at(0);
}

std::string fault(const std::string& function, const std::string& what) {
  return R"({"function": ")" + function + R"(", "do": ")" + what + R"("})";
}

std::string entry(pid_t pid, const std::string& more) {
  return R"({"pid": )" + std::to_string(pid) + ", " + more + "}";
}

Bytes sum(const CardMemory& memory) {
  return memory.used + memory.free + memory.reserved.value_or(0_B);
}

// ---- No driver ----

TEST(Nvml, AMissingLibraryIsAnAnswer) {
  const SetEnvironment nowhere("HEADROOM_NVML", "/nowhere/libnvidia-ml.so.1");
  const Machine machine = look();
  EXPECT_TRUE(machine.why_no_driver.starts_with("no NVIDIA driver here: "))
      << machine.why_no_driver;
  EXPECT_TRUE(machine.cards.empty() && !machine.driver && !machine.cuda_driver);
}

TEST(Nvml, AnotherLibraryIsNamedAsSuch) {
  const SetEnvironment other("HEADROOM_NVML", "libm.so.6");
  EXPECT_EQ(look().why_no_driver,
            "libm.so.6 is not NVIDIA's management library (it has no nvmlInit)");
}

TEST(Nvml, ADriverThatDoesNotStartSaysWhy) {
  for (const auto& [code, words] :
       {std::pair("DRIVER_NOT_LOADED", "Driver Not Loaded"),
        std::pair("LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"),
        std::pair("UNKNOWN", "Unknown Error")}) {
    const FakeDriver driver(R"({"init": ")" + std::string(code) + R"(", "cards": [{}]})");
    const Machine machine = look();
    EXPECT_EQ(machine.why_no_driver, "the NVIDIA driver cannot be used: " + std::string(words));
    EXPECT_TRUE(machine.cards.empty());
  }
}

TEST(Nvml, AMachineWithoutCardsHasADriver) {
  const FakeDriver driver(R"({"driver": "580.65.06", "cuda_driver": 13000, "cards": []})");
  const Machine machine = look();
  EXPECT_EQ(machine.driver, "580.65.06");
  EXPECT_EQ(machine.cuda_driver, 13000);
  EXPECT_EQ(machine.why_no_driver, "");
  EXPECT_TRUE(machine.cards.empty() && machine.warnings.empty());
}

TEST(Nvml, ADriverThatDoesNotCountItsCardsIsAWarning) {
  const FakeDriver driver(R"({"cards": [{}], "faults": [)" +
                          fault("nvmlDeviceGetCount*", "UNKNOWN") + "]}");
  const Machine machine = look();
  EXPECT_TRUE(machine.cards.empty());
  ASSERT_EQ(machine.warnings.size(), 1u);
  EXPECT_TRUE(contains(machine.warnings[0], "Unknown Error")) << machine.warnings[0];
}

TEST(Nvml, ACardThatCannotBeReachedDoesNotHideTheOthers) {
  const FakeDriver driver(R"({"cards": [{}, {}, {}], "faults": [
      {"function": "nvmlDeviceGetHandleByIndex*", "card": 1, "do": "GPU_IS_LOST"}]})");
  const Machine machine = look();
  ASSERT_EQ(machine.cards.size(), 2u);
  EXPECT_EQ(machine.cards[1].index, 2) << "numbers stay the driver's";
  ASSERT_EQ(machine.warnings.size(), 1u);
  EXPECT_EQ(machine.warnings[0], "GPU 1 cannot be reached: GPU is lost");
}

// ---- A healthy card ----

TEST(Nvml, TellsEverythingOfACard) {
  const Card card = look_at(R"("name": "NVIDIA L4", "pci": "00000000:41:00.0",
      "uuid": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "total": "24GiB", "reserved": "300MiB",
      "used": "11GiB", "utilization": 37, "memory_utilization": 12, "temperature": 61,
      "power_mw": 231500, "capability": [8, 9], "persistence": false, "compute_mode": 3)");
  EXPECT_EQ(card.name, "NVIDIA L4");
  EXPECT_EQ(card.pci, "00000000:41:00.0");
  EXPECT_EQ(to_string(card.uuid), "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
  EXPECT_EQ(card.memory->used, 11_GiB);
  EXPECT_EQ(card.memory->reserved, 300_MiB);
  EXPECT_EQ(card.memory->free, 24_GiB - 11_GiB - 300_MiB);
  EXPECT_EQ(card.utilization, 37);
  EXPECT_EQ(card.memory_utilization, 12);
  EXPECT_EQ(card.temperature_c, 61);
  EXPECT_EQ(card.power_w, 231.5);
  EXPECT_EQ(card.capability, (std::array<int, 2>{8, 9}));
  EXPECT_EQ(card.persistence, false);
  EXPECT_EQ(card.compute_mode, ComputeMode::exclusive_process);
  EXPECT_EQ(card.processes->size(), 0u);
  EXPECT_EQ(card.trouble, "");
  EXPECT_FALSE(card.simulated || card.mig_enabled || card.slice || card.stuck);
}

TEST(Nvml, UuidsWithZeroBytesStayWholeAndApart) {
  const FakeDriver driver(R"({"cards": [
      {"uuid": "GPU-00000000-0000-0000-0000-000000000000", "used": "1GiB"},
      {"uuid": "GPU-00000000-0000-0000-0000-000000000100", "used": "2GiB"},
      {"uuid": "GPU-8900f937-0000-4106-c12f-20bd9faed900", "used": "3GiB"}]})");
  const Machine machine = look();
  ASSERT_EQ(machine.cards.size(), 3u);
  EXPECT_EQ(to_string(machine.cards[1].uuid), "GPU-00000000-0000-0000-0000-000000000100");
  EXPECT_EQ(to_string(machine.cards[2].uuid), "GPU-8900f937-0000-4106-c12f-20bd9faed900");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(machine.cards[static_cast<std::size_t>(i)].memory->used, (i + 1) * 1_GiB);
}

TEST(Nvml, CardsThatDoNotTellTheirUuidAreKeptApart) {
  const FakeDriver driver(R"({"cards": [{"used": "1GiB"}, {"used": "2GiB"}], "faults": [)" +
                          fault("nvmlDeviceGetUUID", "UNKNOWN") + "]}");
  const Machine machine = look();
  ASSERT_EQ(machine.cards.size(), 2u);
  EXPECT_NE(machine.cards[0].uuid, machine.cards[1].uuid);
  EXPECT_EQ(machine.cards[0].memory->used, 1_GiB);
  EXPECT_EQ(machine.cards[1].memory->used, 2_GiB);
}

// ---- Memory ----

TEST(Nvml, AnOldDriverDoesNotTellItsOwnShareApart) {
  const Card card =
      look_at(R"("used": "11GiB", "reserved": "300MiB")", "", ProcessTable(), Version::old);
  EXPECT_EQ(card.memory->reserved, std::nullopt);
  EXPECT_EQ(card.memory->used, 11_GiB + 300_MiB) << "contained";
  EXPECT_EQ(sum(*card.memory), card.memory->total);
}

TEST(Nvml, WhereTheSecondStructureIsRefusedTheFirstIsAsked) {
  for (const char* code : {"NOT_SUPPORTED", "INVALID_ARGUMENT", "FUNCTION_NOT_FOUND"}) {
    const Card card = look_at(R"("used": "11GiB", "reserved": "300MiB")",
                              fault("nvmlDeviceGetMemoryInfo_v2", code));
    ASSERT_TRUE(card.memory) << code;
    EXPECT_EQ(card.memory->used, 11_GiB + 300_MiB) << code;
    EXPECT_EQ(card.trouble, "") << code;
  }
}

// Reported sums are off by the driver's rounding, and by far on some virtual machines.
TEST(Nvml, AWrongSumIsMadeRightFromWhatAnAllocationCanGet) {
  for (const char* fields : {R"("used": "11GiB", "reserved": "300MiB", "free": "12GiB")",
                             R"("used": "11GiB", "reserved": "30GiB", "free": "12GiB")",
                             R"("used": "0GiB", "reserved": "0GiB", "free": "30GiB")",
                             R"("used": "11GiB", "reserved": "300MiB", "free": "0GiB")"}) {
    const Card card = look_at(R"("total": "24GiB", )" + std::string(fields));
    ASSERT_TRUE(card.memory) << fields;
    EXPECT_EQ(sum(*card.memory), 24_GiB) << fields;
    EXPECT_TRUE(card.memory->used >= 0_B && *card.memory->reserved >= 0_B) << fields;
    EXPECT_TRUE(card.memory->free >= 0_B && card.memory->free <= 24_GiB) << fields;
  }
}

// ---- What a driver does not tell ----

struct Missing {
  const char* function;
  std::function<bool(const Card&)> is_unknown;
};

const std::vector<Missing> kMissing{
    {"nvmlDeviceGetMemoryInfo*", [](const Card& c) { return !c.memory; }},
    {"nvmlDeviceGetUtilizationRates",
     [](const Card& c) { return !c.utilization && !c.memory_utilization; }},
    {"nvmlDeviceGetTemperature", [](const Card& c) { return !c.temperature_c; }},
    {"nvmlDeviceGetPowerUsage", [](const Card& c) { return !c.power_w; }},
    {"nvmlDeviceGetPersistenceMode", [](const Card& c) { return !c.persistence; }},
    {"nvmlDeviceGetComputeMode", [](const Card& c) { return !c.compute_mode; }},
    {"nvmlDeviceGetComputeRunningProcesses*", [](const Card& c) { return !c.processes; }},
    {"nvmlDeviceGetCudaComputeCapability", [](const Card& c) { return !c.capability; }}};

// How many of the facts above are unknown.
long unknown_facts(const Card& card) {
  return std::count_if(kMissing.begin(), kMissing.end(),
                       [&](const Missing& m) { return m.is_unknown(card); });
}

TEST(Nvml, WhatIsNotSupportedIsUnknownAndNoTrouble) {
  for (const Missing& missing : kMissing) {
    const Card card = look_at(R"("unsupported": [")" + std::string(missing.function) + R"("])");
    EXPECT_TRUE(missing.is_unknown(card)) << missing.function;
    EXPECT_EQ(unknown_facts(card), 1) << missing.function << " takes nothing else with it";
    EXPECT_EQ(card.trouble, "") << missing.function;
  }
}

TEST(Nvml, WhatFailsIsUnknownAndTakesNothingElseWithIt) {
  for (const Missing& missing : kMissing)
    for (const char* code : {"UNKNOWN", "GPU_IS_LOST", "RESET_REQUIRED", "NO_PERMISSION"}) {
      const Card card = look_at("", fault(missing.function, code));
      EXPECT_TRUE(missing.is_unknown(card)) << missing.function << " " << code;
      EXPECT_EQ(unknown_facts(card), 1) << missing.function << " " << code;
    }
}

TEST(Nvml, ANullSensorIsUnknown) {
  const Card card = look_at(R"("total": null, "utilization": null, "temperature": null,
      "power_mw": null, "persistence": null, "compute_mode": null)");
  EXPECT_EQ(unknown_facts(card), 6);
}

// Some drivers answer success with 4000000000 percent.
TEST(Nvml, NonsenseIsUnknown) {
  const Card card = look_at(R"("utilization": 4000000000, "memory_utilization": 4294967295,
      "temperature": 4294967295, "power_mw": 4294967295, "compute_mode": 9)");
  EXPECT_EQ(card.utilization, std::nullopt);
  EXPECT_EQ(card.memory_utilization, std::nullopt);
  EXPECT_EQ(card.temperature_c, std::nullopt);
  EXPECT_EQ(card.power_w, std::nullopt);
  EXPECT_EQ(card.compute_mode, std::nullopt);
}

TEST(Nvml, ALostCardSaysSoAndTheOtherIsWhole) {
  const FakeDriver driver(R"({"cards": [{}, {"used": "1GiB"}], "faults": [
      {"function": "nvmlDeviceGet*", "card": 0, "after": 12, "do": "GPU_IS_LOST"}]})");
  const auto source = make_nvml_source();
  Machine machine = source->open();
  ASSERT_EQ(machine.cards.size(), 2u);
  for (int i = 0; i < 3; ++i) read_all(*source, machine);
  EXPECT_FALSE(machine.cards[0].memory || machine.cards[0].processes);
  EXPECT_EQ(machine.cards[0].trouble, "GPU is lost");
  EXPECT_EQ(machine.cards[1].memory->used, 1_GiB);
  EXPECT_EQ(machine.cards[1].trouble, "");
}

TEST(Nvml, ACardThatFallsOutOfTheMachineIsLost) {
  FakeDriver driver(R"({"cards": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]})");
  const auto source = make_nvml_source();
  Machine machine = source->open();
  driver.becomes(R"({"cards": [{"uuid": "GPU-b", "used": "2GiB"}]})");
  read_all(*source, machine);
  EXPECT_EQ(machine.cards[0].trouble, "GPU is lost");
  EXPECT_EQ(machine.cards[1].memory->used, 2_GiB) << "it is still the same card";
}

TEST(Nvml, ATroubleThatEndsIsForgotten) {
  FakeDriver driver(R"({"cards": [{"used": "1GiB"}], "faults": [)" +
                    fault("nvmlDeviceGetMemoryInfo*", "UNKNOWN") + "]}");
  const auto source = make_nvml_source();
  Machine machine = source->open();
  read_all(*source, machine);
  EXPECT_EQ(machine.cards[0].trouble, "Unknown Error");
  driver.becomes(R"({"cards": [{"used": "1GiB"}]})");
  read_all(*source, machine);
  EXPECT_EQ(machine.cards[0].memory->used, 1_GiB);
  EXPECT_EQ(machine.cards[0].trouble, "");
}

TEST(Nvml, WhatFailsTheSecondTimeIsNotRememberedFromTheFirst) {
  const Card first = look_at(R"("used": "1GiB")");
  EXPECT_EQ(unknown_facts(first), 0);
  FakeDriver driver(R"({"cards": [{"used": "1GiB"}]})");
  const auto source = make_nvml_source();
  Machine machine = source->open();
  read_all(*source, machine);
  driver.becomes(R"({"cards": [{}], "faults": [)" + fault("nvmlDeviceGet*", "GPU_IS_LOST") + "]}");
  read_all(*source, machine);
  EXPECT_EQ(unknown_facts(machine.cards[0]), 7) << "all but the fixed capability";
}

TEST(Nvml, AMachineFileThatIsHalfWrittenChangesNothing) {
  FakeDriver driver(R"({"cards": [{"used": "1GiB"}]})");
  const auto source = make_nvml_source();
  Machine machine = source->open();
  driver.becomes(R"({"cards": [{"used": "5Gi)");
  read_all(*source, machine);
  EXPECT_EQ(machine.cards[0].memory->used, 1_GiB);
}

// ---- Processes ----

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

// An empty list of drawing processes says nothing of who computes.
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

TEST(Nvml, InAContainerANumberIsBelievedOnlyOfWhoHasTheDriverOpen) {
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
  EXPECT_EQ(card.processes->at(1).command, std::nullopt) << "not bash: that is somebody else";
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

TEST(Nvml, ActivityIsTheHighestSampleAndNobodysIsMadeUp) {
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

// ---- Versions of functions ----

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

// ---- MIG ----

const char* const kMigCard = R"({"cards": [{}, {
    "name": "NVIDIA A100-SXM4-40GB", "total": "40GiB", "reserved": "600MiB", "capability": [8, 0],
    "uuid": "GPU-5a6e1c5e-0000-4000-8000-000000000000",
    "mig": {"devices": [
      {"uuid": "MIG-a1b2c3d4-0000-5106-c12f-20bd9faed9f6", "gi": 7, "ci": 0, "profile": "1g.5gb",
       "processes": [{"pid": 4100001, "used": "1GiB"}]},
      null,
      {"uuid": "MIG-GPU-5a6e1c5e-0000-4000-8000-000000000000/3/0", "gi": 3, "ci": 0,
       "profile": "2g.10gb"}]}}]})";

TEST(Nvml, SlicesFollowTheirCardAlsoBehindAnEmptyPlace) {
  const FakeDriver driver(kMigCard);
  const Machine machine = look();
  ASSERT_EQ(machine.cards.size(), 4u);
  EXPECT_TRUE(machine.cards[1].mig_enabled);
  EXPECT_FALSE(machine.cards[0].mig_enabled || machine.cards[0].slice);
  const Card& first = machine.cards[2];
  ASSERT_TRUE(first.slice);
  EXPECT_FALSE(first.mig_enabled);
  EXPECT_EQ(first.index, 1) << "its card's";
  EXPECT_EQ(first.slice->parent, machine.cards[1].uuid);
  EXPECT_EQ(first.slice->gpu_instance, 7);
  EXPECT_EQ(first.slice->compute_instance, 0);
  EXPECT_EQ(first.name, "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
  EXPECT_EQ(first.capability, machine.cards[1].capability);
}

TEST(Nvml, ASliceHasItsOwnMemoryAndProcesses) {
  const FakeDriver driver(kMigCard);
  const Machine machine = look();
  EXPECT_EQ(machine.cards[2].memory->total, 5_GiB);
  EXPECT_EQ(machine.cards[2].memory->used, 1_GiB);
  EXPECT_EQ(machine.cards[2].processes->size(), 1u);
  EXPECT_EQ(machine.cards[3].memory->used, 0_B);
  EXPECT_EQ(machine.cards[3].processes->size(), 0u);
  EXPECT_EQ(machine.cards[2].utilization, std::nullopt) << "slices have no such counter";
  EXPECT_EQ(machine.cards[2].trouble, "");
}

TEST(Nvml, AnOldStyleSliceIsFoundByCudasText) {
  const FakeDriver driver(kMigCard);
  const Uuid uuid = look().cards[3].uuid;
  EXPECT_EQ(to_string(uuid), "MIG-GPU-5a6e1c5e-0000-4000-8000-000000000000/3/0");
  EXPECT_EQ(uuid.instance, (std::array<int, 2>{3, 0}));
}

TEST(Nvml, ASliceThatIsRemovedBecomesUnknown) {
  FakeDriver driver(kMigCard);
  const auto source = make_nvml_source();
  Machine machine = source->open();
  read_all(*source, machine);
  std::string state = kMigCard;
  const std::string first = "a1b2c3d4";
  state.replace(state.find(first), first.size(), "ffffffff");
  driver.becomes(state);
  read_all(*source, machine);
  EXPECT_FALSE(machine.cards[2].memory || machine.cards[2].processes);
  EXPECT_NE(machine.cards[2].trouble, "");
}

TEST(Nvml, MigThatIsOffAndDriversThatDoNotKnowItHaveNoSlices) {
  const Card off = look_at(R"("mig": {"mode": false, "devices": []})");
  EXPECT_FALSE(off.mig_enabled);
  const FakeDriver driver(kMigCard, Version::old);
  const Machine machine = look();
  EXPECT_EQ(machine.cards.size(), 2u);
  EXPECT_FALSE(machine.cards[1].mig_enabled);
}

}  // namespace
}  // namespace headroom::gpu
