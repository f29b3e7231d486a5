#include "headroom/formula/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::formula {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;

constexpr Batch kBatch{.batch = 1, .seq = 512};

TEST(Plannable, LeavesFivePercentOrHalfAGiBWhicheverIsMore) {
  EXPECT_EQ(plannable(80_GiB), 76_GiB);
  EXPECT_EQ(plannable(4_GiB), 4_GiB - 512_MiB);
  EXPECT_EQ(plannable(10240_MiB), 9728_MiB) << "where both margins are the same";
}

TEST(Plannable, IsNothingOfAFullCardAndNeverNegative) {
  EXPECT_EQ(plannable(512_MiB), 0_B);
  EXPECT_EQ(plannable(100_MiB), 0_B);
  EXPECT_EQ(plannable(0_B), 0_B);
  EXPECT_EQ(plannable(Bytes{} - 3_GiB), 0_B);
}

TEST(LargestTrainable, IsTheLastThatFitsToTheByte) {
  const ModelShape& model = *find_shape("774M");
  const Bytes need = training_memory(model, Technique::fp32, kBatch).total();
  EXPECT_EQ(largest_trainable(need, Technique::fp32, kBatch), &model);
  EXPECT_EQ(largest_trainable(need - 1_B, Technique::fp32, kBatch), find_shape("350M"));
}

TEST(LargestTrainable, IsNothingWhereEvenTheSmallestDoesNotFit) {
  EXPECT_EQ(largest_trainable(100_MiB, Technique::fp32, kBatch), nullptr);
  EXPECT_EQ(largest_servable(0_B, Precision::int4, kBatch), nullptr);
}

TEST(LargestServable, GrowsAsThePrecisionShrinks) {
  EXPECT_EQ(largest_servable(plannable(24_GiB), Precision::fp32, kBatch), find_shape("1.3B"));
  EXPECT_EQ(largest_servable(plannable(24_GiB), Precision::fp16, kBatch), find_shape("7B"));
  EXPECT_EQ(largest_servable(plannable(24_GiB), Precision::int4, kBatch), find_shape("13B"));
  EXPECT_EQ(largest_servable(plannable(80_GiB), Precision::int4, kBatch), find_shape("70B"));
}

// LoRA of 7B in bf16 on one 24 GB card and 4-bit LoRA of 13B there are what people do (Dettmers et
// al. 2023, table 6); full training of 7B is not. 1.3B takes 18 bytes a parameter, 22.06 GiB, and
// 0.29 GiB of logits.
TEST(GoodFor, SaysOfA24GiBCardWhatPeopleDoWithOne) {
  const Uses uses = good_for(plannable(24_GiB), kBatch);
  EXPECT_EQ(uses.full, "1.3B");
  EXPECT_EQ(uses.lora, "7B");
  EXPECT_EQ(uses.lora_4bit, "13B");
  EXPECT_EQ(uses.run_16bit, "7B");
  EXPECT_EQ(uses.run_4bit, "13B");
}

TEST(GoodFor, NeverGetsSmallerWithMoreRoom) {
  const auto rank = [](const std::string& name) {
    return name == "-" ? 0 : parameters(*find_shape(name));
  };
  Uses before = good_for(0_B, kBatch);
  for (Bytes room = 1_GiB; room < 200_GiB; room += 1_GiB) {
    const Uses now = good_for(room, kBatch);
    ASSERT_GE(rank(now.full), rank(before.full));
    ASSERT_GE(rank(now.lora), rank(before.lora));
    ASSERT_GE(rank(now.lora_4bit), rank(before.lora_4bit));
    ASSERT_GE(rank(now.run_16bit), rank(before.run_16bit));
    ASSERT_GE(rank(now.run_4bit), rank(before.run_4bit));
    ASSERT_GE(rank(now.run_4bit), rank(now.run_16bit));
    before = now;
  }
  EXPECT_EQ(before.run_16bit, "70B");
}

TEST(GoodFor, SaysNothingRatherThanADash) {
  EXPECT_EQ(
      to_string(good_for(0_B, kBatch)),
      "trains nothing, LoRA nothing, 4-bit LoRA nothing; runs nothing in 16 bit, nothing in 4 "
      "bit");
  EXPECT_THAT(to_string(good_for(plannable(24_GiB), kBatch)), HasSubstr("trains 1.3B, LoRA 7B"));
}

}  // namespace
}  // namespace headroom::formula
