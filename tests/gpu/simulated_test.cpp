// Simulated cards: their specifications, and the processes that count in a shared box.

#include "headroom/gpu/simulated.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/gpu/catalogue.h"
#include "tests/gpu/fixtures/processes.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"

namespace headroom::gpu {
namespace {

using namespace fixtures;
using namespace headroom::literals;

std::string refusal_of_spec(std::string_view spec) {
  try {
    static_cast<void>(parse_simulated(spec));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParseSimulated, TakesCountsSizesAndNamesOfCards) {
  const SimulatedBox eight = parse_simulated("8x31.36GiB");
  ASSERT_EQ(eight.cards.size(), 8u);
  EXPECT_EQ(eight.cards[7].total, 33672543601_B) << "31.36 * 2^30, rounded";
  EXPECT_EQ(eight.cards[0].reserved, 0_B);
  const SimulatedBox mixed = parse_simulated(" sim:1x24GiB, 2x 80 GiB ");
  ASSERT_EQ(mixed.cards.size(), 3u);
  EXPECT_EQ(mixed.cards[0].total, 24_GiB);
  EXPECT_EQ(mixed.cards[2].total, 80_GiB);
  EXPECT_EQ(parse_simulated("24GiB").cards.size(), 1u);
}

TEST(ParseSimulated, ACardOfTheCatalogueBringsItsFigures) {
  for (const char* spec : {"2xRTX4090", "2x4090", "sim:2xRTX 4090", "2xrtx-4090"}) {
    const SimulatedBox box = parse_simulated(spec);
    ASSERT_EQ(box.cards.size(), 2u) << spec;
    const CatalogueCard& known = card_named("RTX 4090");
    EXPECT_EQ(box.cards[0].name, known.name);
    EXPECT_EQ(box.cards[0].total, known.total);
    EXPECT_EQ(box.cards[0].total - box.cards[0].reserved, known.cuda_total);
    EXPECT_EQ(box.cards[0].profile, "ada");
  }
  EXPECT_EQ(parse_simulated("A100-SXM4-80GB").cards[0].name, "NVIDIA A100-SXM4-80GB")
      << "the x of SXM4 counts nothing";
}

TEST(ParseSimulated, ADecimalSizeIsASizeAndNoCard) {
  EXPECT_EQ(parse_simulated("1x24GB").cards[0].total, 24_GB);
  EXPECT_EQ(parse_simulated("1x80GB").cards[0].total, 80_GB);
  EXPECT_EQ(parse_simulated("1x24GB").cards[0].profile, "");
}

// 16 was the limit of every spec, though only simulating has it, and planning has not.
TEST(ParseSimulated, SixtyFourCardsAreTheMostOfAnInventory) {
  EXPECT_EQ(parse_simulated("64x24GiB").cards.size(), 64u);
  EXPECT_EQ(parse_simulated("32x1GiB,32x2GiB").cards.size(), 64u);
  for (const char* spec :
       {"65x1GiB", "32x1GiB,33x1GiB", "1000000000x1GiB", "9223372036854775807x1GiB"})
    EXPECT_TRUE(contains(refusal_of_spec(spec), "at most 64 simulated cards"))
        << refusal_of_spec(spec);
}

TEST(ParseSimulated, SixteenCardsAreTheMostOfASharedBox) {
  EXPECT_EQ(parse_simulated("16x1GiB@lab").cards.size(), 16u);
  EXPECT_TRUE(
      contains(refusal_of_spec("17x1GiB@lab"), "at most 16 simulated cards in a box with a name"));
}

TEST(ParseSimulated, RefusesWhatItCannotRead) {
  for (const char* spec :
       {"", "sim:", "0x24GiB", "-1x24GiB", "x24GiB", "8x", "8x24GiB,", ",8x24GiB", "8x24apples",
        "8xRTX4091", "1x0", "1x1KiB", "8x-24GiB", "@lab", "1x1e30GiB", "99999999999999999999x1GiB"})
    EXPECT_NE(refusal_of_spec(spec), "accepted") << spec;
  EXPECT_TRUE(contains(refusal_of_spec("2xRTX4091"), "try RTX 4090"))
      << refusal_of_spec("2xRTX4091");
}

TEST(ParseSimulated, ANameIsAFileNameAndNoPath) {
  EXPECT_EQ(parse_simulated("8x24GiB@lab-1_a.b").name, "lab-1_a.b");
  for (const char* spec :
       {"8x24GiB@", "8x24GiB@../x", "8x24GiB@a/b", "8x24GiB@.x", "8x24GiB@a b", "8x24GiB@a@b"})
    EXPECT_NE(refusal_of_spec(spec), "accepted") << spec;
  EXPECT_NE(refusal_of_spec("8x24GiB@" + std::string(65, 'a')), "accepted");
}

// ---- The shared box ----

class SharedBox : public ::testing::Test {
 protected:
  void share(const std::vector<BoxShare>& shares) {
    Json file{{"cards", Json::array()}, {"shares", Json::array()}};
    for (const SimulatedCard& card : box_.cards)
      file["cards"].push_back({{"total_bytes", card.total.count}});
    for (const BoxShare& share : shares)
      file["shares"].push_back({{"pid", share.process.pid},
                                {"start_ticks", share.process.start_ticks},
                                {"card", share.card},
                                {"used_bytes", share.used.count}});
    write(to_line(file));
  }

  void write(const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(box_path(box_)).parent_path());
    write_file_atomically(box_path(box_), text);
  }

  // Both cards as another process sees them now.
  [[nodiscard]] std::vector<Card> cards() const {
    const auto source = make_simulated_source(box_);
    Machine machine = source->open();
    for (Card& card : machine.cards) {
      source->read_gauges(card);
      source->read_processes(card);
    }
    return machine.cards;
  }

  testing::TemporaryFolder folder_;
  SetEnvironment state_{"HEADROOM_STATE_DIR", folder_.path().string()};
  SimulatedBox box_ = parse_simulated("1x24GiB,1x80GiB@lab");
};

TEST_F(SharedBox, IsEmptyBeforeItsFirstUse) {
  EXPECT_EQ(read_shares(box_).size(), 0u);
  EXPECT_EQ(cards()[0].memory->free, 24_GiB);
  EXPECT_FALSE(std::filesystem::exists(box_path(box_))) << "reading writes nothing";
}

TEST_F(SharedBox, CountsWhatLivingProcessesUseOnEachCard) {
  const Child one, two;
  share({{one.identity(), 0, 3_GiB}, {two.identity(), 0, 1_GiB}, {two.identity(), 1, 9_GiB}});
  const auto now = cards();
  EXPECT_EQ(now[0].memory->used, 4_GiB);
  EXPECT_EQ(now[0].memory->free, 20_GiB);
  EXPECT_EQ(now[1].memory->used, 9_GiB);
  ASSERT_EQ(now[0].processes->size(), 2u);
  EXPECT_EQ(now[0].processes->at(0).pid, one.pid());
  EXPECT_EQ(now[0].processes->at(0).command, "sleep 1000");
  EXPECT_EQ(now[1].processes->at(0).used, 9_GiB);
}

TEST_F(SharedBox, ADeadProcessUsesNothingHoweverItEnded) {
  Child killed;
  const Child uncollected;
  const ProcessIdentity living = this_process();
  share({{killed.identity(), 0, 3_GiB}, {uncollected.identity(), 0, 2_GiB}, {living, 0, 1_GiB}});
  killed.end();
  ASSERT_TRUE(uncollected.signal_until(SIGKILL, 'Z'));
  EXPECT_EQ(cards()[0].memory->used, 1_GiB);
  EXPECT_EQ(cards()[0].processes->size(), 1u);
  EXPECT_EQ(read_shares(box_).size(), 3u) << "as written, the dead included";
}

TEST_F(SharedBox, AReusedProcessNumberIsAnotherProcess) {
  ProcessIdentity earlier = this_process();
  --earlier.start_ticks;
  share({{earlier, 0, 3_GiB}});
  EXPECT_EQ(cards()[0].memory->used, 0_B);
}

TEST_F(SharedBox, MoreThanTheCardHasIsAFullCard) {
  share({{this_process(), 0, 30_GiB}});
  const CardMemory memory = *cards()[0].memory;
  EXPECT_EQ(memory.free, 0_B);
  EXPECT_EQ(memory.used + *memory.reserved + memory.free, memory.total);
}

TEST_F(SharedBox, WithOtherCardsIsRefusedByName) {
  share({});
  for (const char* other : {"1x24GiB@lab", "2x24GiB@lab", "1x80GiB,1x24GiB@lab"}) {
    const auto source = make_simulated_source(parse_simulated(other));
    EXPECT_THROW(static_cast<void>(source->open()), UsageError) << other;
  }
  EXPECT_NO_THROW(static_cast<void>(make_simulated_source(box_)->open()));
}

TEST_F(SharedBox, AFileThatIsNoBoxIsRefused) {
  for (const char* text : {"", "{", "[]", "{}", "null", R"({"cards": 3, "shares": []})",
                           R"({"cards": [], "shares": [{}]})"}) {
    write(text);
    EXPECT_THROW(static_cast<void>(read_shares(box_)), Error) << text;
  }
  write(R"({"cards": [{"total_bytes": 25769803776}, {"total_bytes": 85899345920}],
            "shares": [{"pid": "one"}]})");
  EXPECT_THROW(static_cast<void>(read_shares(box_)), InputError);
}

TEST_F(SharedBox, AFileThatBreaksLaterMakesItsCardsUnknown) {
  share({{this_process(), 0, 3_GiB}});
  const auto source = make_simulated_source(box_);
  Card card = source->open().cards[0];
  source->read_gauges(card);
  EXPECT_EQ(card.memory->used, 3_GiB);
  write("{");
  source->read_gauges(card);
  source->read_processes(card);
  EXPECT_FALSE(card.memory || card.processes);
  EXPECT_FALSE(card.trouble.empty());
  share({});
  source->read_gauges(card);
  EXPECT_EQ(card.memory->used, 0_B);
  EXPECT_EQ(card.trouble, "");
}

TEST_F(SharedBox, ACardHasOneUuidInAllProcessesAndAnotherInEachBox) {
  const auto uuid = [](const char* spec, std::size_t n) {
    return make_simulated_source(parse_simulated(spec))->open().cards.at(n).uuid;
  };
  EXPECT_EQ(uuid("2x1GiB@lab1", 1), uuid("2x1GiB@lab1", 1));
  EXPECT_NE(uuid("2x1GiB@lab1", 0), uuid("2x1GiB@lab1", 1));
  EXPECT_NE(uuid("2x1GiB@lab1", 0), uuid("2x1GiB@lab2", 0));
  EXPECT_NE(uuid("2x1GiB@lab1", 0), uuid("2x1GiB", 0));
}

}  // namespace
}  // namespace headroom::gpu
