// `headroom cards` and `headroom models`: the tables, as people and as scripts read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "headroom/base/wrap.h"
#include "tests/cli/headroom_process.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Cards, HasEveryKeyOfTheContractForAtLeast45Cards) {
  const World world;
  const Outcome outcome = world.headroom({"cards", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const Json cards = outcome.json()["cards"];
  EXPECT_GE(cards.size(), 45U);
  std::set<std::string> names;
  for (const Json& card : cards) {
    for (const char* key :
         {"name", "total_bytes", "bandwidth", "flops", "link", "good_for", "source"})
      EXPECT_TRUE(card.contains(key) && !card[key].is_null()) << key << " of " << card["name"];
    EXPECT_TRUE(names.insert(card["name"]).second) << card["name"];
    EXPECT_GT(card["total_bytes"].get<std::int64_t>(), 1LL << 30) << card["name"];
    EXPECT_GT(card["bandwidth"].get<double>(), 1e10) << "bytes a second: " << card["name"];
    EXPECT_FALSE(card["source"].get<std::string>().empty()) << card["name"];
  }
}

TEST(Cards, FindsCardsByTheirCommonNames) {
  const World world;
  const Json cards =
      world.headroom({"cards", "4090", "A100-40GB", "h100 pcie", "--json"}).json()["cards"];
  ASSERT_EQ(cards.size(), 3U);
  EXPECT_EQ(cards[0]["name"], "NVIDIA GeForce RTX 4090");
  EXPECT_THAT(cards[1]["name"].get<std::string>(), AllOf(HasSubstr("A100"), HasSubstr("40GB")));
  EXPECT_THAT(cards[2]["name"].get<std::string>(), AllOf(HasSubstr("H100"), HasSubstr("PCIe")));
}

TEST(Cards, FitsInto80Cells) {
  const World world;
  for (const std::string& line : lines_of(world.headroom({"cards"}).out))
    EXPECT_LE(line.size(), 90U) << line;
}

// They ran over the edge of 60 columns: figures are never cut.
TEST(Tables, GoOnBelowWhereTheWidthEnds) {
  World world;
  world.set("COLUMNS", "60");
  for (const Arguments& command :
       {Arguments{"models"}, Arguments{"cards"}, Arguments{"models", "--gpus", "RTX 4090"}}) {
    const Outcome outcome = world.headroom(command);
    EXPECT_THAT(outcome.out, HasSubstr("4-bit")) << "the last columns are there, too";
    for (const std::string& line : lines_of(outcome.out))
      EXPECT_LE(cells(line), 60U) << command[0] << ": " << line;
  }
}

TEST(Models, HasEveryKeyOfTheContractForTheSevenSizes) {
  const World world;
  const Outcome outcome = world.headroom({"models", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  const Json models = outcome.json()["models"];
  std::vector<std::string> names;
  for (const Json& model : models) {
    names.push_back(model["name"]);
    const auto parameters = model["parameters"].get<std::int64_t>();
    EXPECT_EQ(model["fp32_bytes"], 4 * parameters);
    EXPECT_EQ(model["fp16_bytes"], 2 * parameters);
    EXPECT_EQ(model["int8_bytes"], parameters);
    EXPECT_EQ(model["int4_bytes"], (parameters + 1) / 2);
    EXPECT_EQ(model["training"]["method"], "formula");
    EXPECT_GT(model["training"]["fp32_adamw"]["total_bytes"], 16 * parameters);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("125M", "350M", "774M", "1.3B", "7B", "13B", "70B"));
}

TEST(Models, CountsForTheBatchAskedFor) {
  const World world;
  const Json model =
      world.headroom({"models", "--json", "--batch", "4", "--seq", "1024"}).json()["models"][0];
  EXPECT_EQ(model["training"]["batch"], 4);
  EXPECT_EQ(model["training"]["seq"], 1024);
  // 8232409088 bytes without dropout, counted under transformers 4.57.6 (FakeTensorMode, torch
  // 2.11); the model as published drops, which keeps a mask for each.
  const auto total = model["training"]["fp32_adamw"]["total_bytes"].get<double>();
  EXPECT_GT(total, 8232409088.0);
  EXPECT_LT(total, 1.03 * 8232409088.0);
}

TEST(Models, MarksWhatFitsOnACard) {
  World world;
  world.set("LC_ALL", "C");
  const Outcome outcome = world.headroom({"models", "--gpus", "RTX 4090"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(" +"), HasSubstr("fits into")));
  EXPECT_EQ(world.headroom({"models"}).out.find("fits into"), std::string::npos);
}

TEST(Models, SayWhereTheyHaveFewerPositions) {
  const World world;
  EXPECT_THAT(world.headroom({"models", "--seq", "2048"}).out,
              HasSubstr("125M, 350M, 774M: 1024 tokens, the maximum"));
  EXPECT_THAT(world.headroom({"models", "--seq", "1024"}).out, Not(HasSubstr("positions")));
}

TEST(Models, RefusesInvalidBatches) {
  const World world;
  for (const Arguments& command : {Arguments{"models", "--batch", "0"},
                                   {"models", "--batch", "-1"},
                                   {"models", "--seq", "many"},
                                   {"models", "--seq", "1e9"}}) {
    const Outcome outcome = world.headroom(command);
    EXPECT_EQ(outcome.exit_code, 64);
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace headroom::testing
