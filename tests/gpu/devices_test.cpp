// The values of `--gpus` and their meaning.

#include "headroom/gpu/devices.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/gpu/catalogue.h"
#include "tests/gpu/fixtures/cards.h"
#include "tests/gpu/fixtures/surroundings.h"
#include "tests/support/contains.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using Kind = Devices::Kind;
using Texts = std::vector<std::string>;

template <typename Call>
std::string refusal_of(Call&& call) {
  try {
    static_cast<void>(call());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refused(std::string_view text) {
  return refusal_of([&] { return parse_devices(text); });
}

TEST(ParseDevices, TakesTheWordsInAnyCase) {
  EXPECT_EQ(parse_devices("auto").kind, Kind::automatic);
  EXPECT_EQ(parse_devices("ALL").kind, Kind::all);
  EXPECT_EQ(parse_devices(" cpu ").kind, Kind::cpu);
}

TEST(ParseDevices, TakesNumbersAndUuids) {
  EXPECT_EQ(parse_devices("0,2").listed, (Texts{"0", "2"}));
  EXPECT_EQ(parse_devices(" 2 , 0 ").listed, (Texts{"2", "0"}));
  EXPECT_EQ(parse_devices("GPU-8932f937,MIG-a1b2,1").listed,
            (Texts{"GPU-8932f937", "MIG-a1b2", "1"}));
  EXPECT_EQ(parse_devices("gpu-8932").kind, Kind::listed);
}

TEST(ParseDevices, TakesASimulatedBoxAndACardsName) {
  const Devices box = parse_devices("sim:2x24GiB@lab");
  EXPECT_EQ(box.kind, Kind::simulated);
  EXPECT_EQ(box.box.cards.size(), 2u);
  EXPECT_EQ(box.box.name, "lab");
  for (const char* name : {"RTX 4090", "4090", "rtx4090"}) {
    const Devices card = parse_devices(name);
    EXPECT_EQ(card.kind, Kind::simulated) << name;
    ASSERT_EQ(card.box.cards.size(), 1u) << name;
    EXPECT_EQ(card.box.cards[0].name, "NVIDIA GeForce RTX 4090");
    EXPECT_EQ(card.text, name);
  }
}

TEST(ParseDevices, TakesOneOfEachCardThatIsNamed) {
  const Devices cards = parse_devices("RTX 4090, h100");
  EXPECT_EQ(cards.kind, Kind::simulated);
  ASSERT_EQ(cards.box.cards.size(), 2u);
  EXPECT_EQ(cards.box.cards[0].name, "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(cards.box.cards[1].name, "NVIDIA H100 80GB HBM3");
  EXPECT_TRUE(contains(refused("RTX 4090,h10"), "received 'h10'")) << refused("RTX 4090,h10");
  for (const CatalogueCard& card : catalogue())
    EXPECT_EQ(parse_devices(card.name).box.cards.at(0).name, card.name);
}

TEST(ParseDevices, TheWordSimIsReadInAnyCaseToo) {
  EXPECT_EQ(parse_devices("SIM:2x24GiB").box.cards.size(), 2u);
}

TEST(ParseDevices, RefusesWhatItCannotRead) {
  for (const char* text : {"", " ", ",", "0,", ",0", "-1", "0,-1", "0,x", "0 1",
                           "sim:", "sim:0x1GiB", "0,all", "banana", "1.5"})
    EXPECT_NE(refused(text), "accepted") << text;
  EXPECT_TRUE(contains(refused("0,x"), "expected auto, all, cpu, numbers (0,2)")) << refused("0,x");
  EXPECT_TRUE(contains(refused("RTX 4091"), "try RTX 4090")) << refused("RTX 4091");
  EXPECT_TRUE(contains(refused("RTX 9999"), "try RTX 3090, RTX 4090 or RTX 5090"))
      << refused("RTX 9999");
  EXPECT_TRUE(contains(refused("RTX 4090,A100"), "A100 40GB")) << refused("RTX 4090,A100");
  EXPECT_TRUE(contains(refused("sim:2xA100"), "A100 40GB")) << refused("sim:2xA100");
  EXPECT_TRUE(contains(refused("0,1,0"), "each card once")) << refused("0,1,0");
}

TEST(DevicesFrom, TheOptionGoesBeforeTheVariable) {
  const SetEnvironment preset("HEADROOM_GPUS", "all");
  EXPECT_EQ(devices_from("cpu").kind, Kind::cpu);
  EXPECT_EQ(devices_from("").kind, Kind::all);
  const SetEnvironment empty("HEADROOM_GPUS", "");
  EXPECT_EQ(devices_from("").kind, Kind::automatic);
  const SetEnvironment bad("HEADROOM_GPUS", "banana split");
  EXPECT_THROW(static_cast<void>(devices_from("")), UsageError);
  EXPECT_EQ(devices_from("cpu").kind, Kind::cpu);
}

// ---- Which cards of the machine are meant ----

Machine three_cards_one_cut() {
  std::vector<Card> cards{card(0)};
  for (Card& part : mig_card(1)) cards.push_back(part);
  cards.push_back(card(2));
  return machine_of(std::move(cards));
}

Texts kept(const Devices& devices, const CudaEnvironment& environment = {}) {
  Texts labels;
  for (const Card& card : narrowed(three_cards_one_cut(), devices, environment).cards)
    labels.push_back(label(card));
  return labels;
}

TEST(Narrowed, ListedCardsComeInTheOrderOfTheList) {
  EXPECT_EQ(kept(parse_devices("2,0")), (Texts{"GPU 2", "GPU 0"}));
  EXPECT_EQ(kept(parse_devices(to_string(numbered(2)))), Texts{"GPU 2"});
  EXPECT_EQ(kept(parse_devices("GPU-02,GPU-00")), (Texts{"GPU 2", "GPU 0"}));
}

TEST(Narrowed, ANumberIsTheCardAndAUuidMayBeItsSlice) {
  EXPECT_EQ(kept(parse_devices("1")), Texts{"GPU 1"});
  EXPECT_EQ(kept(parse_devices("MIG-b1")), Texts{"GPU 1 slice MIG-b1000000"});
}

TEST(Narrowed, ListedNumbersAreTheDriversWhateverCudaSees) {
  EXPECT_EQ(kept(parse_devices("0"), {.visible_devices = "2"}), Texts{"GPU 0"});
}

TEST(Narrowed, AMissingOrAmbiguousCardIsRefusedWithThoseThatAreThere) {
  const auto why = [](const char* text) {
    return refusal_of([&] { return kept(parse_devices(text)); });
  };
  EXPECT_TRUE(contains(why("3"), "a GPU of this machine (0, 1, MIG-b0000000, MIG-b1000000, 2)"))
      << why("3");
  EXPECT_TRUE(contains(why("GPU-0"), "fits one card only")) << why("GPU-0");
  EXPECT_NE(why("GPU-ff"), "accepted");
}

// Picking two cards of "0,GPU-00" once gave the same card twice.
TEST(Narrowed, ACardNamedInTwoWaysIsRefused) {
  for (const char* text : {"0,00", "0,GPU-00", "GPU-00,GPU-000"})
    EXPECT_NE(refusal_of([&] { return kept(parse_devices(text)); }), "accepted") << text;
}

TEST(Narrowed, AutoKeepsTheCardsThatProgramsSee) {
  const CudaEnvironment sees_two{.device_order = "PCI_BUS_ID", .visible_devices = "2,0"};
  EXPECT_EQ(kept(parse_devices("auto"), sees_two), (Texts{"GPU 2", "GPU 0"}));
  EXPECT_EQ(kept(parse_devices("all"), sees_two).size(), 5u) << "all means all";
  EXPECT_EQ(kept(parse_devices("auto")).size(), 5u);
  EXPECT_EQ(kept(parse_devices("auto"), {.visible_devices = ""}), Texts{});
}

TEST(Narrowed, TheCpuIsNoCard) {
  EXPECT_EQ(kept(parse_devices("cpu")), Texts{});
}

TEST(Narrowed, ASimulatedBoxKnowsNothingOfCudasVariables) {
  Machine machine = three_cards_one_cut();
  machine.simulated = true;
  EXPECT_EQ(narrowed(machine, parse_devices("sim:1x24GiB"), {.visible_devices = ""}).cards.size(),
            5u);
}

TEST(Narrowed, TheCardsOfABoxMayBeListedInAnOrder) {
  Machine machine = three_cards_one_cut();
  machine.simulated = true;
  Devices box = parse_devices("sim:3x24GiB@lab");
  box.listed = {"2", "0"};
  const std::vector<Card> cards = narrowed(machine, box, {}).cards;
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[0].index, 2);
  EXPECT_EQ(cards[1].index, 0);
}

TEST(MakeSource, TakesTheBoxOrTheDriver) {
  const Machine box = make_source(parse_devices("sim:2x24GiB"))->open();
  EXPECT_TRUE(box.simulated && box.cards.size() == 2);
  const SetEnvironment nowhere("HEADROOM_NVML", "/nowhere/libnvidia-ml.so.1");
  const Machine bare = make_source(parse_devices("all"))->open();
  EXPECT_FALSE(bare.simulated);
  EXPECT_FALSE(bare.why_no_driver.empty());
}

}  // namespace
}  // namespace headroom::gpu
