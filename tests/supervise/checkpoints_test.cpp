// Which checkpoint is the newest, and how it is named to a program.

#include "headroom/supervise/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/support/temporary_folder.h"

namespace headroom::supervise {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NewestCheckpoint : public ::testing::Test {
 protected:
  void add(const std::string& name, int second, const std::string& content = "x") {
    const auto file = folder_.write(name, content);
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::from_sys(start_ + seconds(second)));
  }
  [[nodiscard]] std::string newest(const std::string& pattern, int since = 0) const {
    const auto path =
        newest_checkpoint((folder_.path() / pattern).string(), start_ + seconds(since));
    return path ? std::filesystem::relative(*path, folder_.path()).string() : "none";
  }

  headroom::testing::TemporaryFolder folder_;
  WallTime start_ = WallTime(seconds(1'790'000'000));
};

TEST_F(NewestCheckpoint, IsTheLastWrittenMatch) {
  add("ckpt-1.pt", 10);
  add("ckpt-2.pt", 5);
  add("other.pt", 20);
  EXPECT_EQ(newest("ckpt-*.pt"), "ckpt-1.pt");
  EXPECT_EQ(newest("{ckpt-2,none}.pt"), "ckpt-2.pt");
  EXPECT_EQ(newest("none-*"), "none");
}

TEST_F(NewestCheckpoint, IsNotOneOfAnEarlierRun) {
  add("ckpt-1.pt", 10);
  EXPECT_EQ(newest("ckpt-*", 11), "none");
  EXPECT_EQ(newest("ckpt-*", 10), "ckpt-1.pt");
}

TEST_F(NewestCheckpoint, HasTheHighestNumberAmongEqualTimes) {
  for (const char* name : {"step-1000", "step-999", "step-0998"}) add(name, 5);
  EXPECT_EQ(newest("step-*"), "step-1000");
}

TEST_F(NewestCheckpoint, IsCompleteAndNotEmpty) {
  add("c-1", 1);
  add("c-2", 2, "");
  for (const char* name : {"c-3.tmp", "c-4.part", "c-5.incomplete", "c-6~"}) add(name, 9);
  EXPECT_EQ(newest("c-*"), "c-1");
}

TEST_F(NewestCheckpoint, MayBeAFolderAsNewAsItsNewestFile) {
  add("checkpoint-1/deep/model.bin", 30);
  add("checkpoint-2/model.bin", 20);
  add("checkpoint-3/model.bin", 40, "");
  EXPECT_EQ(newest("checkpoint-*"), "checkpoint-1");
  EXPECT_EQ(newest("checkpoint-*/"), "checkpoint-1");
}

TEST_F(NewestCheckpoint, IsNoBrokenLink) {
  std::filesystem::create_symlink("gone", folder_.path() / "c-9");
  add("c-1", 1);
  EXPECT_EQ(newest("c-*"), "c-1");
}

TEST(ResumeArguments, KeepThePathInOneWord) {
  EXPECT_THAT(resume_arguments("--resume {}", "a b/c"), ElementsAre("--resume", "a b/c"));
  EXPECT_THAT(resume_arguments("resume='{}' \"--x y\" {}", "{}"),
              ElementsAre("resume={}", "--x y", "{}"));
}

TEST(ResumeArguments, AreRefusedWithoutAPlaceForThePath) {
  EXPECT_THROW((void)resume_arguments("--resume", "p"), UsageError);
  EXPECT_THROW((void)resume_arguments("--resume '{}", "p"), UsageError);
}

}  // namespace
}  // namespace headroom::supervise
