// Prices of stages: kept, not mixed up, and no reason to fail.
#include "headroom/plan/price_book.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"

namespace headroom::plan {
namespace {

using namespace literals;
namespace fs = std::filesystem;

const Stage kStage{.form = {.rows = 2, .replicas = 4},
                   .first = 3,
                   .count = 5,
                   .waiting = 6,
                   .parts = 7,
                   .rows = 14,
                   .checkpointed = true};
const StagePrice kPrice{1_GiB, 2_GiB, 3_GiB};

class PriceBookTest : public ::testing::Test {
 protected:
  [[nodiscard]] PriceBook book(const Json& identity = {{"model", "a"}}) const {
    return PriceBook(identity, folder_.path());
  }
  [[nodiscard]] fs::path only_file() const {
    return fs::directory_iterator(folder_.path())->path();
  }

  headroom::testing::TemporaryFolder folder_;
};

TEST_F(PriceBookTest, KeepsWhatItIsGivenForTheSameModelOnly) {
  PriceBook first = book();
  first.add(kStage, kPrice);
  EXPECT_TRUE(book().prices().empty());
  first.save();
  const PriceBook again = book();
  ASSERT_EQ(again.prices().size(), 1U);
  EXPECT_EQ(again.prices().begin()->first, kStage);
  EXPECT_EQ(again.prices().begin()->second.resident, kPrice.resident);
  EXPECT_EQ(again.prices().begin()->second.requested, kPrice.requested);
  EXPECT_EQ(again.prices().begin()->second.reserved, kPrice.reserved);
  EXPECT_TRUE(book({{"model", "b"}}).prices().empty());
}

// Two programs plan for one model at the same time.
TEST_F(PriceBookTest, LosesNothingThatAnotherProgramAdds) {
  PriceBook one = book(), other = book();
  Stage larger = kStage;
  larger.count = 6;
  one.add(kStage, kPrice);
  other.add(larger, kPrice);
  one.save();
  other.save();
  EXPECT_EQ(book().prices().size(), 2U);
}

TEST_F(PriceBookTest, IsEmptyIfItsFileIsBrokenAndThenMendsIt) {
  PriceBook first = book();
  first.add(kStage, kPrice);
  first.save();
  const std::string text = read_input(only_file());
  for (const std::size_t length : {std::size_t{0}, text.size() / 3, text.size() - 4}) {
    std::ofstream(only_file()) << text.substr(0, length);
    EXPECT_TRUE(book().prices().empty()) << length;
  }
  PriceBook second = book();
  second.add(kStage, kPrice);
  second.save();
  EXPECT_EQ(book().prices().size(), 1U);
}

TEST_F(PriceBookTest, ThatCannotBeWrittenIsNoError) {
  std::ofstream(folder_.path() / "file") << "no folder";
  PriceBook nowhere({{"model", "a"}}, folder_.path() / "file" / "prices");
  nowhere.add(kStage, kPrice);
  nowhere.save();
  EXPECT_EQ(nowhere.prices().size(), 1U);
}

}  // namespace
}  // namespace headroom::plan
