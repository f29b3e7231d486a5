#include "headroom/trace/event.h"

#include <gtest/gtest.h>

#include <set>

#include "headroom/base/error.h"

namespace headroom::trace {
namespace {

TEST(EventNames, AreDifferentForEachValue) {
  std::set<std::string_view> kinds, categories, phases;
  for (int i = 0; i < kKinds; ++i) kinds.insert(to_string(static_cast<Kind>(i)));
  for (int i = 0; i < kCategories; ++i) categories.insert(to_string(static_cast<Category>(i)));
  for (int i = 0; i < kPhases; ++i) phases.insert(to_string(static_cast<Phase>(i)));
  EXPECT_EQ(kinds.size(), std::size_t{kKinds});
  EXPECT_EQ(categories.size(), std::size_t{kCategories});
  EXPECT_EQ(phases.size(), std::size_t{kPhases});
}

TEST(EventNames, BelongToTheirValues) {
  EXPECT_EQ(to_string(Kind::segment_unmap), "segment_unmap");
  EXPECT_EQ(to_string(Kind::record_stream), "record_stream");
  EXPECT_EQ(to_string(Kind::release_pool), "release_pool");
  EXPECT_EQ(to_string(Category::workspace), "workspace");
  EXPECT_EQ(to_string(Phase::evaluation), "evaluation");
}

TEST(EventNames, ThrowInternalErrorForAnInvalidValue) {
  EXPECT_THROW(static_cast<void>(to_string(static_cast<Kind>(kKinds))), InternalError);
}

TEST(Names, GiveOneTextOneNumber) {
  Names names;
  EXPECT_EQ(names.number(""), 0U) << "the empty text is there from the start";
  const Name attention = names.number("h.0.attn");
  EXPECT_EQ(names.number("h.1.attn"), attention + 1);
  EXPECT_EQ(names.number("h.0.attn"), attention);
  EXPECT_EQ(names.text(attention), "h.0.attn");
  EXPECT_EQ(names.size(), 3U);
}

TEST(Names, ThrowInternalErrorForAnUnknownNumber) {
  EXPECT_THROW(static_cast<void>(Names().text(1)), InternalError);
}

TEST(Names, OfACopyOutliveTheOriginal) {
  Names copy;
  {
    Names original;
    for (int i = 0; i < 1000; ++i) original.number(std::to_string(i));
    copy = original;
  }
  EXPECT_EQ(copy.number("999"), 1000U);
  EXPECT_EQ(copy.number("new"), 1001U);
}

}  // namespace
}  // namespace headroom::trace
