// Cards through a driver, and through one that fails in every way drivers are known to fail
// (tests/fake_nvml/README.md).

#include "headroom/gpu/nvml.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/nvml_cards.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/contains.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Version = FakeDriver::Version;

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
TEST(Nvml, AWrongSumIsCorrectedFromTheFreeMemory) {
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

// The number of the facts above that are unknown.
long unknown_facts(const Card& card) {
  return std::count_if(kMissing.begin(), kMissing.end(),
                       [&](const Missing& m) { return m.is_unknown(card); });
}

TEST(Nvml, AnUnsupportedQueryIsUnknownAndNoTrouble) {
  for (const Missing& missing : kMissing) {
    const Card card = look_at(R"("unsupported": [")" + std::string(missing.function) + R"("])");
    EXPECT_TRUE(missing.is_unknown(card)) << missing.function;
    EXPECT_EQ(unknown_facts(card), 1) << missing.function << " takes nothing else with it";
    EXPECT_EQ(card.trouble, "") << missing.function;
  }
}

TEST(Nvml, AFailedQueryIsUnknownAndAffectsNoOther) {
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

TEST(Nvml, AFailedQueryDoesNotReturnAnOlderValue) {
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

}  // namespace
}  // namespace headroom::gpu
