#include "headroom/forecast/usual_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "headroom/plan/policies.h"

namespace headroom::forecast {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;

constexpr TableBatch kBatch{.batch = 1, .seq = 512};

const UsualSize& usual(std::string_view name) {
  for (const UsualSize& each : usual_sizes())
    if (each.name == name) return each;
  throw std::out_of_range(std::string(name));
}

Bytes total(std::string_view of, std::string_view key, const TableBatch& batch) {
  for (const Recipe& recipe : recipes())
    if (recipe.key == key) return forecast_of(usual(of), recipe, batch).at_peak.total();
  throw std::out_of_range(std::string(key));
}

TEST(UsualSizes, AreSevenInOrderEachWithItsParameters) {
  std::vector<std::string> names;
  long long before = 0;
  for (const UsualSize& each : usual_sizes()) {
    names.push_back(each.name);
    EXPECT_GT(each.parameters, before) << each.name;
    before = each.parameters;
  }
  EXPECT_THAT(names, ::testing::ElementsAre("125M", "350M", "774M", "1.3B", "7B", "13B", "70B"));
  EXPECT_EQ(usual("125M").parameters, 124'439'808);
  EXPECT_EQ(usual("7B").parameters, 6'738'415'616);
}

TEST(WeightBytes, FollowTheType) {
  EXPECT_EQ(weight_bytes(1001, WeightType::fp32).count, 4004);
  EXPECT_EQ(weight_bytes(1001, WeightType::fp16).count, 2002);
  EXPECT_EQ(weight_bytes(1001, WeightType::int8).count, 1001);
  EXPECT_EQ(weight_bytes(1001, WeightType::int4).count, 501);
}

TEST(Recipes, HaveNamesAndKeysOfTheirOwn) {
  std::set<std::string_view> names, keys;
  for (const Recipe& recipe : recipes()) {
    names.insert(recipe.name);
    keys.insert(recipe.key);
    EXPECT_EQ(recipe.key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"),
              std::string_view::npos);
  }
  EXPECT_EQ(names.size(), recipes().size());
  EXPECT_EQ(keys.size(), recipes().size());
}

TEST(Recipes, AreOrderedAsPeopleKnowThem) {
  const TableBatch batch{.batch = 4, .seq = 2048};
  EXPECT_LT(total("7B", "mixed_precision_checkpointing", batch),
            total("7B", "mixed_precision", batch));
  EXPECT_LT(total("7B", "bf16", batch), total("7B", "mixed_precision", batch));
  EXPECT_LT(total("7B", "lora", batch), total("7B", "bf16", batch));
  EXPECT_LT(total("7B", "lora_4bit", batch), total("7B", "lora", batch));
  EXPECT_LT(total("7B", "fp32_sgd", batch), total("7B", "fp32_adamw", batch));
}

// Mixed precision does not halve the states, although many believe that it does.
TEST(Recipes, OfMixedPrecisionSaveActivationsOnly) {
  const auto parts = [](std::string_view key) {
    for (const Recipe& recipe : recipes())
      if (recipe.key == key) return forecast_of(usual("1.3B"), recipe, {.batch = 4, .seq = 2048});
    throw std::out_of_range("recipe");
  };
  const Forecast full = parts("fp32_adamw"), mixed = parts("mixed_precision");
  EXPECT_EQ(mixed.at_peak.parameters, full.at_peak.parameters);
  EXPECT_EQ(mixed.at_peak.optimizer, full.at_peak.optimizer);
  EXPECT_EQ(mixed.resident, full.resident);
  EXPECT_LT(mixed.at_peak.activations, full.at_peak.activations);
}

TEST(ForecastOfASize, GivesAModelNoMoreTokensThanItHasPositionsFor) {
  EXPECT_EQ(*forecast_of(usual("125M"), recipes()[0], {.batch = 1, .seq = 4096}).settings.seq,
            1024);
  EXPECT_EQ(*forecast_of(usual("7B"), recipes()[0], {.batch = 1, .seq = 4096}).settings.seq, 4096);
}

// LoRA of 7B in bf16 on one 24 GB card and 4-bit LoRA of 13B there are what people do (Dettmers et
// al. 2023, table 6); full training of 7B is not.
TEST(GoodFor, SaysOfA24GiBCardWhatPeopleDoWithOne) {
  const Uses uses = GoodFor(kBatch).of(plan::plannable(24_GiB));
  EXPECT_EQ(uses.lora, "7B");
  EXPECT_EQ(uses.lora_4bit, "13B");
  EXPECT_EQ(uses.run_16bit, "7B");
  EXPECT_EQ(uses.run_4bit, "13B");
}

TEST(GoodFor, NeverGetsSmallerWithMoreRoom) {
  const GoodFor table(kBatch);
  const auto rank = [](const std::string& name) {
    return name == "-" ? 0 : usual(name).parameters;
  };
  Uses before = table.of(0_B);
  for (Bytes room = 1_GiB; room < 200_GiB; room += 1_GiB) {
    const Uses now = table.of(room);
    ASSERT_GE(rank(now.full), rank(before.full));
    ASSERT_GE(rank(now.lora), rank(before.lora));
    ASSERT_GE(rank(now.lora_4bit), rank(before.lora_4bit));
    ASSERT_GE(rank(now.run_16bit), rank(before.run_16bit));
    ASSERT_GE(rank(now.run_4bit), rank(now.run_16bit));
    before = now;
  }
  EXPECT_EQ(before.run_16bit, "70B");
}

TEST(GoodFor, SaysNothingRatherThanADash) {
  EXPECT_EQ(to_string(GoodFor(kBatch).of(0_B)),
            "trains nothing, LoRA nothing, 4-bit LoRA nothing; runs nothing in 16 bit, nothing in "
            "4 bit");
  EXPECT_THAT(to_string(GoodFor(kBatch).of(plan::plannable(24_GiB))), HasSubstr("LoRA 7B"));
}

}  // namespace
}  // namespace headroom::forecast
