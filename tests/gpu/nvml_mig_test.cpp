// Cards that are cut into MIG slices.

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/nvml_cards.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Version = FakeDriver::Version;

const char* const kMigCard = R"({"cards": [{}, {
    "name": "NVIDIA A100-SXM4-40GB", "total": "40GiB", "reserved": "600MiB", "capability": [8, 0],
    "uuid": "GPU-5a6e1c5e-0000-4000-8000-000000000000",
    "mig": {"devices": [
      {"uuid": "MIG-a1b2c3d4-0000-5106-c12f-20bd9faed9f6", "gi": 7, "ci": 0, "profile": "1g.5gb",
       "processes": [{"pid": 4100001, "used": "1GiB"}]},
      null,
      {"uuid": "MIG-GPU-5a6e1c5e-0000-4000-8000-000000000000/3/0", "gi": 3, "ci": 0,
       "profile": "2g.10gb"}]}}]})";

TEST(Nvml, SlicesFollowTheirCardAcrossAnEmptySlot) {
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
