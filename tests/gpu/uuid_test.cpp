// The identity of a card: 16 bytes, however its text is written.

#include "headroom/gpu/uuid.h"

#include <gtest/gtest.h>

#include <set>

namespace headroom::gpu {
namespace {

const std::string kText = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

TEST(Uuid, ReadsTheTextNvmlPrints) {
  const auto uuid = Uuid::parse(kText);
  ASSERT_TRUE(uuid);
  EXPECT_EQ(uuid->kind, Uuid::Kind::gpu);
  EXPECT_EQ(uuid->bytes[0], 0x89);
  EXPECT_EQ(uuid->bytes[4], 0xd7);
  EXPECT_EQ(uuid->bytes[15], 0xf6);
  EXPECT_EQ(to_string(*uuid), kText);
}

TEST(Uuid, IsTheSameInAnyCase) {
  EXPECT_EQ(Uuid::parse("gpu-8932F937-D72C-4106-C12F-20BD9FAED9F6"), Uuid::parse(kText));
}

TEST(Uuid, KeepsEveryByteAlsoBehindZeros) {
  const auto zeros = Uuid::parse("GPU-00000000-0000-0000-0000-000000000000");
  const auto late = Uuid::parse("GPU-00000000-0000-0000-0000-000000000001");
  ASSERT_TRUE(zeros && late);
  EXPECT_NE(*zeros, *late);
  EXPECT_EQ(to_string(*late), "GPU-00000000-0000-0000-0000-000000000001");
  const auto middle = Uuid::parse("GPU-8932f900-d72c-0006-c12f-20bd9fae00f6");
  ASSERT_TRUE(middle);
  EXPECT_EQ(to_string(*middle), "GPU-8932f900-d72c-0006-c12f-20bd9fae00f6");
}

TEST(Uuid, ACardAndASliceWithTheSameBytesAreNotTheSame) {
  EXPECT_NE(Uuid::parse(kText), Uuid::parse("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6"));
}

TEST(Uuid, ReadsTheSlicesOfOldDrivers) {
  const std::string text = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/7/0";
  const auto slice = Uuid::parse(text);
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->kind, Uuid::Kind::mig);
  EXPECT_EQ(slice->instance, (std::array<int, 2>{7, 0}));
  EXPECT_EQ(slice->bytes, Uuid::parse(kText)->bytes);
  EXPECT_EQ(to_string(*slice), text);
  EXPECT_NE(slice, Uuid::parse("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/7/1"));
}

TEST(Uuid, RefusesInvalidText) {
  for (const char* text :
       {"", "GPU-", "GPU-8932f937", "8932f937-d72c-4106-c12f-20bd9faed9f6",
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6a",
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9fg", "GPU-8932f937xd72c-4106-c12f-20bd9faed9f6",
        "GPU-8932f9-37d72c-4106-c12f-20bd9faed9f6", " GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/7",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/7/x",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/-7/0",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/4294967303/0"})
    EXPECT_EQ(Uuid::parse(text), std::nullopt) << text;
}

TEST(Uuid, FromADriverAnyTextIsAnIdentity) {
  const Uuid odd = Uuid::from_driver("GPU-odd"), other = Uuid::from_driver("GPU-odder");
  EXPECT_EQ(to_string(odd), "GPU-odd");
  EXPECT_EQ(short_text(odd), "GPU-odd");
  EXPECT_EQ((std::set<Uuid>{odd, other, odd}).size(), 2u);
  EXPECT_EQ(Uuid::from_driver("MIG-odd").kind, Uuid::Kind::mig);
  EXPECT_EQ(Uuid::from_driver(kText), Uuid::parse(kText));
}

TEST(Uuid, ShortTextTellsCardsApart) {
  EXPECT_EQ(short_text(*Uuid::parse(kText)), "GPU-8932f937");
  EXPECT_EQ(short_text(*Uuid::parse("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6")), "MIG-8932f937");
  const std::string old = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/7/0";
  EXPECT_EQ(short_text(*Uuid::parse(old)), old) << "the instance is what differs";
}

TEST(Uuid, ABeginningIsEnoughInAnyCase) {
  const Uuid uuid = *Uuid::parse(kText);
  EXPECT_TRUE(begins_with(uuid, "GPU-8932"));
  EXPECT_TRUE(begins_with(uuid, "gpu-8932F937-d7"));
  EXPECT_TRUE(begins_with(uuid, kText));
  EXPECT_FALSE(begins_with(uuid, kText + "0"));
  EXPECT_FALSE(begins_with(uuid, "8932"));
  EXPECT_FALSE(begins_with(uuid, "MIG-8932"));
}

}  // namespace
}  // namespace headroom::gpu
