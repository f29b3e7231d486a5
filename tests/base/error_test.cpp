#include "headroom/base/error.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace headroom {
namespace {

using namespace headroom::literals;

TEST(Expectation, SaysWhereWhatWasExpectedWhatCameAndWhatToTry) {
  EXPECT_EQ(to_string(expectation("parse_bytes", "a size such as 10GiB", "10 apples", "10GiB")),
            "[parse_bytes] expected a size such as 10GiB, received '10 apples'; try 10GiB");
}

TEST(Expectation, LeavesOutAnEmptyAdvice) {
  EXPECT_EQ(expectation("f", "a", "").words, "expected a, received ''");
  EXPECT_EQ(expectation("f", "a", "none").words, "expected a, received none");
}

TEST(Sentence, LeavesOutTheFunction) {
  EXPECT_EQ(UsageError("parse_bytes", "expected a size").sentence(), "expected a size");
  EXPECT_STREQ(UsageError("parse_bytes", "expected a size").what(),
               "[parse_bytes] expected a size");
  EXPECT_EQ(UsageError("Player::play", "expected an id").sentence(), "expected an id");
}

TEST(Sentence, KeepsAnOptionAndAPlaceInAFile) {
  EXPECT_EQ(UsageError("--need", "expected a size").sentence(), "--need: expected a size");
  EXPECT_EQ(UsageError("limits.users.bob", "expected a size").sentence(),
            "limits.users.bob: expected a size");
}

TEST(Sentence, IsAllThereIsWithoutAPlace) {
  EXPECT_EQ(UsageError("[1, 2").sentence(), "[1, 2");
}

template <typename T>
constexpr bool is_only_an_error =
    std::is_base_of_v<Error, T> && !std::is_base_of_v<UsageError, T> &&
    !std::is_base_of_v<InputError, T> && !std::is_base_of_v<WriteError, T>;

TEST(ErrorFamily, TellsFaultsApartByType) {
  EXPECT_TRUE((std::is_base_of_v<Error, UsageError>));
  EXPECT_TRUE((std::is_base_of_v<Error, InputError>));
  EXPECT_TRUE((std::is_base_of_v<Error, WriteError>));
  EXPECT_TRUE((is_only_an_error<UnavailableError> && is_only_an_error<BusyError> &&
               is_only_an_error<InternalError> && is_only_an_error<OutOfMemoryError>));
}

TEST(OutOfMemoryError, CarriesTheBytesAsked) {
  try {
    throw OutOfMemoryError({"f", "out of memory"}, 2_GiB);
  } catch (const Error& error) {
    const auto* out_of_memory = dynamic_cast<const OutOfMemoryError*>(&error);
    ASSERT_NE(out_of_memory, nullptr);
    EXPECT_EQ(out_of_memory->asked, 2_GiB);
  }
}

}  // namespace
}  // namespace headroom
