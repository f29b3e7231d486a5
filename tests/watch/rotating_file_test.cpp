#include "headroom/watch/rotating_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom::watch {
namespace {

namespace fs = std::filesystem;
using headroom::testing::FileSizeLimit;
using headroom::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string content(const fs::path& path) {
  return read_file(path).value_or("(no file)");
}

std::string numbered_line(int n) {
  return "line " + std::to_string(n) + " " + std::string(static_cast<std::size_t>(n % 17), '.') +
         "\n";
}

TEST(RotatingFile, BeginsANewFileWithItsHeader) {
  const TemporaryFolder folder;
  RotatingFile file(folder.path() / "log", "a,b\n");
  EXPECT_EQ(content(folder.path() / "log"), "a,b\n");
  file.append("1,2\n");
  EXPECT_EQ(content(folder.path() / "log"), "a,b\n1,2\n") << "at once, not at the end";
}

TEST(RotatingFile, AppendsToWhatIsThere) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "log";
  RotatingFile(path, "a,b\n").append("1,2\n");
  RotatingFile(path, "a,b\n").append("3,4\n");
  EXPECT_EQ(content(path), "a,b\n1,2\n3,4\n");
}

TEST(RotatingFile, NeverRotatesWithoutALimit) {
  const TemporaryFolder folder;
  RotatingFile file(folder.path() / "log", "");
  for (int i = 0; i < 1000; ++i) file.append(numbered_line(i));
  EXPECT_THAT(folder.names(), UnorderedElementsAre("log"));
}

TEST(RotatingFile, KeepsAsManyOldFilesAsAsked) {
  const TemporaryFolder folder;
  RotatingFile file(folder.path() / "log", "h\n", {.limit = Bytes{100}, .keep = 2});
  for (int i = 0; i < 100; ++i) file.append(numbered_line(i));
  EXPECT_THAT(folder.names(), UnorderedElementsAre("log", "log.1", "log.2"));
}

TEST(RotatingFile, KeepsNoneIfNoneIsWanted) {
  const TemporaryFolder folder;
  RotatingFile file(folder.path() / "log", "h\n", {.limit = Bytes{50}, .keep = 0});
  for (int i = 0; i < 20; ++i) file.append(numbered_line(i));
  EXPECT_THAT(folder.names(), UnorderedElementsAre("log"));
  EXPECT_TRUE(content(folder.path() / "log").ends_with(numbered_line(19)));
}

TEST(RotatingFile, CutsNoLineAndLosesNone) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "log";
  constexpr int kLines = 200;
  {
    RotatingFile file(path, "h\n", {.limit = Bytes{200}, .keep = 1000});
    for (int i = 0; i < kLines; ++i) file.append(numbered_line(i));
  }
  std::string all;
  for (std::size_t n = folder.names().size() - 1; n > 0; --n) {
    const std::string part = content(path.string() + "." + std::to_string(n));
    EXPECT_LE(part.size(), 200U);
    EXPECT_TRUE(part.starts_with("h\n")) << "each file begins with the header";
    all += part.substr(2);
  }
  all += content(path).substr(2);
  std::string expected;
  for (int i = 0; i < kLines; ++i) expected += numbered_line(i);
  EXPECT_EQ(all, expected);
}

TEST(RotatingFile, KeepsTheLinesOfOneSampleTogether) {
  const TemporaryFolder folder;
  RotatingFile file(folder.path() / "log", "", {.limit = Bytes{30}, .keep = 9});
  file.append("sample 1 card 0\n");
  file.append("sample 2 card 0\nsample 2 card 1\n");
  EXPECT_EQ(content(folder.path() / "log.1"), "sample 1 card 0\n");
  EXPECT_EQ(content(folder.path() / "log"), "sample 2 card 0\nsample 2 card 1\n");
}

TEST(RotatingFile, WritesALineLongerThanTheLimitWhole) {
  const TemporaryFolder folder;
  const std::string line = std::string(100, 'x') + "\n";
  RotatingFile file(folder.path() / "log", "h\n", {.limit = Bytes{10}, .keep = 5});
  file.append(line);
  file.append(line);
  EXPECT_EQ(content(folder.path() / "log"), "h\n" + line);
  EXPECT_EQ(content(folder.path() / "log.1"), "h\n" + line);
  EXPECT_FALSE(fs::exists(folder.path() / "log.2")) << "no file of a header alone";
}

TEST(RotatingFile, CountsWhatAnEarlierRunLeft) {
  const TemporaryFolder folder;
  const auto path = folder.write("log", "h\n" + std::string(90, 'x') + "\n");
  RotatingFile file(path, "h\n", {.limit = Bytes{100}, .keep = 3});
  file.append("a new line, too long\n");
  EXPECT_EQ(content(path), "h\na new line, too long\n");
}

// A disk that filled up once left half a line behind, to which the next run's first was glued.
TEST(RotatingFile, LeavesWholeLinesWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "log";
  RotatingFile file(path, "h\n");
  file.append("whole\n");
  {
    const FileSizeLimit limit(12);
    EXPECT_THROW(file.append("longer than what is left\n"), WriteError);
  }
  EXPECT_EQ(content(path), "h\nwhole\n");
  file.append("space again\n");
  EXPECT_EQ(content(path), "h\nwhole\nspace again\n");
}

TEST(RotatingFile, ReportsAFullDevice) {
  try {
    RotatingFile("/dev/full", "").append("x\n");
    FAIL();
  } catch (const WriteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/dev/full"));
    EXPECT_THAT(error.what(), HasSubstr("No space left"));
  }
}

TEST(RotatingFile, NamesAFolderThatDoesNotExist) {
  const TemporaryFolder folder;
  try {
    const RotatingFile file(folder.path() / "missing" / "log", "");
    FAIL();
  } catch (const WriteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing/log: No such file or directory"));
  }
}

// `--out /dev/null --rotate 1MiB`, typed by root, once renamed the device.
TEST(RotatingFile, NeverRenamesAPipeOrDevice) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  RotatingFile file(pipe, "h\n", {.limit = Bytes{8}, .keep = 3});
  for (int i = 0; i < 5; ++i) file.append("a line\n");
  ::close(reader);
  EXPECT_THAT(folder.names(), UnorderedElementsAre("pipe"));
}

}  // namespace
}  // namespace headroom::watch
