// What a person is told of an error.

#include "headroom/base/sentence.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(SentenceOf, LeavesTheFunctionOut) {
  EXPECT_EQ(sentence_of("[parse_bytes] expected a size"), "expected a size");
  EXPECT_EQ(sentence_of("[Player::play] expected an id"), "expected an id");
}

TEST(SentenceOf, KeepsAnOptionAndAPlaceOfAFile) {
  EXPECT_EQ(sentence_of("[--need] expected a size"), "--need: expected a size");
  EXPECT_EQ(sentence_of("[--map --bs=batch] expected --bs"), "--map --bs=batch: expected --bs");
  EXPECT_EQ(sentence_of("[limits.users.bob] expected a size"), "limits.users.bob: expected a size");
}

TEST(SentenceOf, LeavesOtherTextsAsTheyAre) {
  EXPECT_EQ(sentence_of("no room"), "no room");
  EXPECT_EQ(sentence_of("[1, 2"), "[1, 2");
  EXPECT_EQ(sentence_of(""), "");
}

}  // namespace
}  // namespace headroom
