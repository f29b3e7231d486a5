// Which card CUDA calls 0. Expected values are written by hand from PyTorch's rules (2.11,
// torch/cuda/__init__.py) and NVIDIA's MIG guide; that PyTorch itself answers the same on hundreds
// of other lists is visible_devices.py's matter.

#include "headroom/gpu/cuda_order.h"

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/surroundings.h"
#include "tests/support/contains.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;

using Positions = std::vector<std::size_t>;
using Value = std::optional<std::string>;
using Texts = std::vector<std::string>;

Positions seen(const Machine& machine, const Value& order, const Value& visible) {
  return cuda_view(machine, {.device_order = order, .visible_devices = visible}).cards;
}

const Value kNotSet;
const Value kOrders[] = {kNotSet, "FASTEST_FIRST", "PCI_BUS_ID", "garbage"};
const Value kByPci = "PCI_BUS_ID";

// UUIDs: 0 and 1 begin alike, 2 holds zero bytes.
const char* const kUuids[] = {
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8932aaaa-d72c-4106-c12f-20bd9faed9f6",
    "GPU-5a000000-0000-0000-0000-00000000000c", "GPU-c0ffee00-d72c-4106-c12f-20bd9faed9f6"};

Machine with_uuids(std::vector<Card> cards) {
  for (std::size_t i = 0; i < cards.size(); ++i) cards[i].uuid = *Uuid::parse(kUuids[i]);
  return machine_of(std::move(cards));
}

Machine four_equal_cards() {
  return with_uuids({card(0), card(1), card(2), card(3)});
}

// The fast card last, as people plug it in: two 3060 and a 4090.
Machine mixed_cards() {
  Machine machine = with_uuids({card(0), card(1), card(2)});
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    machine.cards[i].name = "NVIDIA GeForce RTX 3060";
    machine.cards[i].capability = {8, 6};
  }
  return machine;
}

struct Case {
  Value visible;
  Positions on_four_equal;
  Positions on_mixed_fastest_first;  // cuda:0 is position 2, then 0, 1
  Positions on_mixed_by_pci;
};

std::string text_of(const Case& c) {
  return c.visible ? "CUDA_VISIBLE_DEVICES='" + *c.visible + "'" : "CUDA_VISIBLE_DEVICES unset";
}

std::string list(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

// By number: numbers count in CUDA's order.
const std::vector<Case> kNumbers{{kNotSet, {0, 1, 2, 3}, {2, 0, 1}, {0, 1, 2}},
                                 {"0,1,2", {0, 1, 2}, {2, 0, 1}, {0, 1, 2}},
                                 {"0", {0}, {2}, {0}},
                                 {"0,2", {0, 2}, {2, 1}, {0, 2}},
                                 {"2,0,1", {2, 0, 1}, {1, 2, 0}, {2, 0, 1}},
                                 {"1,-1,0", {1}, {0}, {1}},
                                 {"-1", {}, {}, {}},
                                 {"-1,0", {}, {}, {}},
                                 {"-0", {0}, {2}, {0}},
                                 {"1,1", {}, {}, {}},
                                 {"0,1,0", {}, {}, {}},
                                 {"0,-1,0", {0}, {2}, {0}},
                                 {"9", {}, {}, {}},
                                 {"1,9,0", {1}, {0}, {1}},
                                 {"0,9,9", {}, {}, {}},
                                 {"9,0,0", {}, {}, {}},
                                 {" 1 ,\t2 ", {1, 2}, {0, 1}, {1, 2}},
                                 {"1gpu2,2ampere", {1, 2}, {0, 1}, {1, 2}},
                                 {"+1", {1}, {0}, {1}},
                                 {"+1,1", {}, {}, {}},
                                 {"01,0x2", {1, 0}, {0, 2}, {1, 0}},
                                 {"1.5,2", {1, 2}, {0, 1}, {1, 2}},
                                 {"1e0,01", {}, {}, {}},
                                 {"", {}, {}, {}},
                                 {" ", {}, {}, {}},
                                 {",0", {}, {}, {}},
                                 {"0,,1", {0}, {2}, {0}},
                                 {"0,", {0}, {2}, {0}},
                                 {"garbage", {}, {}, {}},
                                 {"1,garbage,0", {1}, {0}, {1}},
                                 {"0;1", {0}, {2}, {0}},
                                 {"NoDevFiles", {}, {}, {}},
                                 {"99999999999999999999", {}, {}, {}},
                                 {"1,99999999999999999999,0", {1}, {0}, {1}},
                                 {"1,99999999999999999999,1", {}, {}, {}}};

// By UUID: the order is the list's, whatever CUDA_DEVICE_ORDER says.
const std::vector<Case> kByUuid{{kUuids[2], {2}, {2}, {2}},
                                {list({kUuids[2], kUuids[0]}), {2, 0}, {2, 0}, {2, 0}},
                                {"GPU-5a", {2}, {2}, {2}},
                                {"GPU-8932f,GPU-5a", {0, 2}, {0, 2}, {0, 2}},
                                {"GPU-8932", {}, {}, {}},
                                {"GPU-5a,GPU-8932,GPU-8932f", {2}, {2}, {2}},
                                {"GPU-", {}, {}, {}},
                                {"GPU-deadbeef", {}, {}, {}},
                                {list({kUuids[1], "GPU-deadbeef", kUuids[0]}), {1}, {1}, {1}},
                                {list({kUuids[1], kUuids[1]}), {}, {}, {}},
                                {list({kUuids[2], "GPU-5a"}), {}, {}, {}},
                                {list({kUuids[1], "0"}), {1}, {1}, {1}},
                                {list({kUuids[1], "0", kUuids[1]}), {1}, {1}, {1}},
                                {list({kUuids[1], " " + std::string(kUuids[0])}), {1}, {1}, {1}},
                                {std::string(kUuids[1]) + "0", {}, {}, {}},
                                {"GPU-5A", {}, {}, {}},
                                {"gpu-5a", {}, {}, {}},
                                {" GPU-5a", {}, {}, {}},
                                {"MIG-5a", {}, {}, {}}};

// A UUID behind a number ends the list as garbage does.
const std::vector<Case> kMixed{{list({"1", kUuids[0]}), {1}, {0}, {1}}};

class CudaOrder : public ::testing::TestWithParam<Value> {
 protected:
  static void expect_all(const std::vector<Case>& cases) {
    const bool by_pci = GetParam() == kByPci;
    for (const Case& c : cases) {
      EXPECT_EQ(seen(four_equal_cards(), GetParam(), c.visible), c.on_four_equal) << text_of(c);
      EXPECT_EQ(seen(mixed_cards(), GetParam(), c.visible),
                by_pci ? c.on_mixed_by_pci : c.on_mixed_fastest_first)
          << text_of(c);
    }
  }
};

TEST_P(CudaOrder, NumbersCountInCudasOrder) {
  expect_all(kNumbers);
}

TEST_P(CudaOrder, UuidsCountInTheOrderOfTheList) {
  expect_all(kByUuid);
}

TEST_P(CudaOrder, AUuidBehindANumberEndsTheList) {
  expect_all(kMixed);
}

TEST_P(CudaOrder, ANumberCanBeLookedUp) {
  const CudaView view =
      cuda_view(four_equal_cards(), {.device_order = GetParam(), .visible_devices = "3,1"});
  EXPECT_EQ(cuda_number(view, 3), 0);
  EXPECT_EQ(cuda_number(view, 1), 1);
  EXPECT_EQ(cuda_number(view, 0), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(EachDeviceOrder, CudaOrder, ::testing::ValuesIn(kOrders),
                         [](const auto& order) { return order.param.value_or("unset"); });

// ---- Slices (NVIDIA MIG user guide, "CUDA device enumeration": one instance a process, and no
// other card beside it) ----

const char* const kSliceA = "MIG-a1b2c3d4-0000-5106-c12f-20bd9faed9f6";
const char* const kSliceB = "MIG-b1b2c3d4-0000-5106-c12f-20bd9faed9f6";

// Position 0: the cut card, 1 and 2: its slices, 3: a card that is not cut.
Machine mig_machine() {
  std::vector<Card> cards = mig_card(0);
  cards[1].uuid = *Uuid::parse(kSliceA);
  cards[2].uuid = *Uuid::parse(kSliceB);
  cards.push_back(card(1));
  cards[3].name = cards[0].name;
  cards[3].capability = cards[0].capability;
  cards[3].uuid = *Uuid::parse(kUuids[3]);
  return machine_of(std::move(cards));
}

TEST_P(CudaOrder, ACutCardIsItsFirstSliceAndHidesOtherCards) {
  const std::string parent = to_string(mig_machine().cards[0].uuid);
  const std::vector<std::pair<Value, Positions>> cases{{kNotSet, {1}},
                                                       {"0", {1}},
                                                       {"1", {3}},
                                                       {"1,0", {1}},
                                                       {"2", {}},
                                                       {kSliceA, {1}},
                                                       {kSliceB, {2}},
                                                       {"MIG-b1", {2}},
                                                       {"MIG-", {}},
                                                       {"MIG-c", {}},
                                                       {"MIG-b1,MIG-a1", {2}},
                                                       {list({kSliceB, kSliceB}), {}},
                                                       {list({kSliceB, "MIG-b1"}), {}},
                                                       {list({kSliceB, kUuids[3]}), {2}},
                                                       {parent, {1}},
                                                       {kUuids[3], {3}},
                                                       {list({kUuids[3], kSliceB}), {3}},
                                                       {"GPU-b1b2c3d4", {}},
                                                       {"", {}}};
  for (const auto& [visible, expected] : cases)
    EXPECT_EQ(seen(mig_machine(), GetParam(), visible), expected) << visible.value_or("unset");
}

TEST_P(CudaOrder, SlicesOfOldDriversAreNamedByTheirCard) {
  Machine machine = mig_machine();
  const std::string parent = to_string(machine.cards[0].uuid);
  machine.cards[1].uuid = *Uuid::parse("MIG-" + parent + "/7/0");
  machine.cards[2].uuid = *Uuid::parse("MIG-" + parent + "/8/0");
  EXPECT_EQ(seen(machine, GetParam(), "MIG-" + parent + "/8/0"), Positions{2});
  EXPECT_EQ(seen(machine, GetParam(), "MIG-" + parent + "/9/0"), Positions{});
  EXPECT_EQ(seen(machine, GetParam(), "MIG-" + parent), Positions{}) << "fits both";
}

TEST(CudaView, WarnsIfCudaSeesOnlyOneOfTheListedSlices) {
  const CudaView view =
      cuda_view(mig_machine(), {.device_order = kByPci, .visible_devices = "MIG-b1,MIG-a1"});
  ASSERT_EQ(view.warnings.size(), 1u);
  EXPECT_TRUE(contains(view.warnings[0], "one MIG slice and no other card")) << view.warnings[0];
  EXPECT_TRUE(cuda_view(mig_machine(), {.device_order = kByPci, .visible_devices = kSliceA})
                  .warnings.empty());
}

TEST(CudaView, ACardInMigModeWithoutSlicesIsNotThere) {
  Machine machine = mig_machine();
  machine.cards.erase(machine.cards.begin() + 1, machine.cards.begin() + 3);
  EXPECT_EQ(seen(machine, kByPci, kNotSet), Positions{1});
  machine.cards.pop_back();
  const CudaView none = cuda_view(machine, {});
  EXPECT_EQ(none.cards, Positions{});
  EXPECT_FALSE(none.why_empty.empty());
}

// ---- What is said ----

Texts warnings(const Machine& machine, const Value& order, const Value& visible = {}) {
  return cuda_view(machine, {.device_order = order, .visible_devices = visible}).warnings;
}

TEST(CudaView, WarnsWhereNvidiaSmiAndCudaCountDifferently) {
  const std::string said = "nvidia-smi and CUDA count differently here: ";
  EXPECT_EQ(warnings(mixed_cards(), kNotSet),
            Texts{said + "cuda:0 is GPU 2 (NVIDIA GeForce RTX 4090)"});
  EXPECT_EQ(warnings(mixed_cards(), kNotSet, "1"),
            Texts{said + "in CUDA_VISIBLE_DEVICES 0 is GPU 2 (NVIDIA GeForce RTX 4090)"});
}

TEST(CudaView, WarnsOfNothingWhereBothCountAlikeOrUuidsAreListed) {
  EXPECT_EQ(warnings(mixed_cards(), kByPci), Texts{});
  EXPECT_EQ(warnings(mixed_cards(), kNotSet, "GPU-5a"), Texts{});
  EXPECT_EQ(warnings(four_equal_cards(), kNotSet), Texts{});
  EXPECT_EQ(warnings(four_equal_cards(), kByPci, "1"), Texts{}) << "the user chose that";
}

TEST(CudaView, SaysThatTheOrderOfDifferentCardsIsAnEstimate) {
  EXPECT_TRUE(cuda_view(mixed_cards(), {}).order_is_estimated);
  EXPECT_FALSE(cuda_view(mixed_cards(), {.device_order = kByPci}).order_is_estimated);
  EXPECT_FALSE(cuda_view(four_equal_cards(), {}).order_is_estimated);
}

TEST(CudaView, CardsOutsideTheCatalogueAreOrderedByCapability) {
  Machine machine = mixed_cards();
  for (Card& card : machine.cards) card.name = "NVIDIA Something New";
  machine.cards[0].name = "NVIDIA Something Newer";
  machine.cards[1].capability = {12, 0};
  EXPECT_EQ(seen(machine, kNotSet, kNotSet), (Positions{1, 2, 0}));
}

TEST(CudaView, AnInvalidDeviceOrderIsNamed) {
  const auto lines = warnings(four_equal_cards(), "pci_bus_id");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "CUDA_DEVICE_ORDER='pci_bus_id' is neither")) << lines[0];
}

TEST(CudaView, SaysWhyNoCardIsSeen) {
  const auto why = [](const std::string& visible) {
    return cuda_view(four_equal_cards(), {.visible_devices = visible}).why_empty;
  };
  EXPECT_EQ(why(""), "CUDA_VISIBLE_DEVICES='': it is empty, which hides every card");
  EXPECT_TRUE(contains(why("-1"), "'-1' is no GPU")) << why("-1");
  EXPECT_TRUE(contains(why("1,1"), "is listed twice")) << why("1,1");
  EXPECT_TRUE(contains(why("7"), "there is no card 7")) << why("7");
  EXPECT_TRUE(contains(why("GPU-8932"), "several cards are 'GPU-8932'")) << why("GPU-8932");
  EXPECT_TRUE(contains(why("GPU-dead"), "no card is called 'GPU-dead'")) << why("GPU-dead");
}

TEST(CudaView, AListThatEndsEarlyIsAWarning) {
  const CudaView view =
      cuda_view(four_equal_cards(), {.device_order = kByPci, .visible_devices = "0,7,1"});
  EXPECT_EQ(view.why_empty, "");
  ASSERT_EQ(view.warnings.size(), 1u);
  EXPECT_TRUE(contains(view.warnings[0], "there is no card 7")) << view.warnings[0];
}

TEST(CudaView, IsEmptyWithoutAReasonOnAMachineWithoutCards) {
  const CudaView view = cuda_view(Machine{}, {.visible_devices = "0"});
  EXPECT_TRUE(view.cards.empty() && view.why_empty.empty() && view.warnings.empty());
}

TEST(CudaEnvironment, TellsUnsetFromEmpty) {
  {
    const SetEnvironment order("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    const SetEnvironment visible("CUDA_VISIBLE_DEVICES", "");
    EXPECT_EQ(CudaEnvironment::current().device_order, "PCI_BUS_ID");
    EXPECT_EQ(CudaEnvironment::current().visible_devices, "");
  }
  const SetEnvironment visible("CUDA_VISIBLE_DEVICES", std::nullopt);
  EXPECT_EQ(CudaEnvironment::current().visible_devices, std::nullopt);
}

}  // namespace
}  // namespace headroom::gpu
