// Values that worked before: found for the same job, never lost, never trusted blindly.

#include "headroom/plan/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "tests/support/garbage.h"
#include "tests/support/temporary_folder.h"

namespace headroom::plan {
namespace {

using namespace literals;
using ::testing::HasSubstr;

class SettingsStore : public ::testing::Test {
 protected:
  void remember(long long batch, Bytes free = 20_GiB, const std::string& job = "t") const {
    store_.remember({job, "H100", free}, {{"batch", batch}, {"accumulation", 64 / batch}}, 5_GiB);
  }
  [[nodiscard]] long long known(Bytes free = 20_GiB, const std::string& job = "t",
                                const std::string& card = "H100") const {
    const auto found = store_.find({job, card, free});
    return found ? found->values.at("batch") : 0;
  }
  [[nodiscard]] std::size_t entries() const {
    return parse_json(read_input(file_), "plans").at("entries").size();
  }

  headroom::testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "state" / "plans.json";
  Store store_{file_};
};

TEST_F(SettingsStore, IsEmptyAtFirst) {
  EXPECT_EQ(known(), 0);
}

TEST_F(SettingsStore, FindsRememberedValuesWithTheirFigures) {
  remember(16);
  const auto found = store_.find({"t", "H100", 20_GiB});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->values, (std::map<std::string, long long>{{"batch", 16}, {"accumulation", 4}}));
  EXPECT_EQ(found->peak, 5_GiB);
  EXPECT_EQ(found->free, 20_GiB);
  EXPECT_GT(found->when.time_since_epoch().count(), 0);
}

TEST_F(SettingsStore, FindsNothingForAnotherJobOrCard) {
  remember(16);
  EXPECT_EQ(known(20_GiB, "other"), 0);
  EXPECT_EQ(known(20_GiB, "t", "A100"), 0);
}

TEST_F(SettingsStore, FindsTheLargestBatchThatWorkedWithNoMoreMemory) {
  remember(16, 20_GiB);
  remember(32, 40_GiB);
  remember(8, 10_GiB);
  EXPECT_EQ(known(80_GiB), 32);
  EXPECT_EQ(known(39_GiB), 16);
  EXPECT_EQ(known(10_GiB), 8);
  EXPECT_EQ(known(9_GiB), 0) << "what worked with more says nothing";
}

TEST_F(SettingsStore, TwoPercentLessFreeMemoryCountsAsTheSame) {
  remember(16, 20_GiB);
  EXPECT_EQ(known(Bytes((20_GiB).count * 99 / 100)), 16);
  EXPECT_EQ(known(Bytes((20_GiB).count * 97 / 100)), 0);
}

TEST_F(SettingsStore, TheSameValuesAreOneEntryWithTheLeastMemoryTheyWorkedWith) {
  remember(16, 20_GiB);
  remember(16, 12_GiB);
  remember(16, 30_GiB);
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(known(12_GiB), 16);
}

TEST_F(SettingsStore, ReportsTheMostMemoryWithWhichLargerValuesFailed) {
  remember(16, 12_GiB);
  remember(16, 10_GiB);
  const auto found = store_.find({"t", "H100", 40_GiB});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->free, 10_GiB);
  EXPECT_EQ(found->tried_up_to, 12_GiB);
}

TEST_F(SettingsStore, ForgetsValuesThatNoLongerWork) {
  remember(16);
  remember(8);
  store_.forget({"t", "H100", 20_GiB}, {{"batch", 16}, {"accumulation", 4}});
  EXPECT_EQ(known(), 8);
}

TEST_F(SettingsStore, DropsTheOldestBeyondTwoHundredEntries) {
  for (int i = 0; i < 205; ++i) remember(16, 20_GiB, "job " + std::to_string(i));
  EXPECT_EQ(entries(), 200u);
  EXPECT_EQ(known(20_GiB, "job 4"), 0);
  EXPECT_EQ(known(20_GiB, "job 5"), 16);
}

TEST_F(SettingsStore, RenamesAnUnreadableFileAndReplacesIt) {
  for (const char* text : {"", "no json", "[]", "{\"schema\":2,\"entries\":[]}",
                           "{\"schema\":1,\"entries\":[{\"job\":1}]}", "{\"schema\":1}", "null"}) {
    folder_.write("state/plans.json", text);
    EXPECT_EQ(known(), 0) << text;
    remember(16);
    EXPECT_EQ(known(), 16) << text;
    EXPECT_EQ(read_file(file_.string() + ".broken"), text);
  }
}

TEST_F(SettingsStore, NeverCrashesOnADamagedFile) {
  remember(16);
  remember(8, 10_GiB);
  const std::string good = read_input(file_);
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    folder_.write("state/plans.json",
                  headroom::testing::mutated(good, good, random, headroom::testing::kOfJson));
    (void)store_.find({"t", "H100", 20_GiB});
    if (i % 20 != 0) continue;
    remember(4);
    EXPECT_GE(known(), 4);
  }
}

TEST_F(SettingsStore, AnUnwritableFolderIsAnError) {
  folder_.write("file", "x");
  const Store store(folder_.path() / "file" / "plans.json");
  EXPECT_FALSE(store.find({"t", "c", 1_GiB}));
  EXPECT_THROW(store.remember({"t", "c", 1_GiB}, {{"batch", 1}}, {}), WriteError);
}

TEST_F(SettingsStore, LosesNothingWhenProgramsRememberAtTheSameTime) {
  constexpr int kPrograms = 4, kJobs = 20;
  for (int program = 0; program < kPrograms; ++program) {
    if (::fork() != 0) continue;
    for (int i = 0; i < kJobs; ++i)
      remember(16, 20_GiB, std::to_string(program) + "/" + std::to_string(i));
    ::_exit(0);
  }
  for (int program = 0; program < kPrograms; ++program) {
    int status = 1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(entries(), static_cast<std::size_t>(kPrograms * kJobs));
}

TEST_F(SettingsStore, RemembersAJobThatIsNotValidUtf8) {
  remember(16, 20_GiB, "cd /\xff && t");
  remember(16, 20_GiB, "cd /\xff && t");
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(known(20_GiB, "cd /\xff && t"), 16);
}

}  // namespace
}  // namespace headroom::plan
