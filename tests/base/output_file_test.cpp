#include "headroom/base/output_file.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

using testing::TemporaryFolder;

// The temporary file that is being written; "" if there is none.
std::string temporary_in(const TemporaryFolder& folder) {
  for (const std::string& name : folder.names())
    if (name.ends_with(".tmp")) return name;
  return "";
}

TEST(OutputFile, TakesTheTargetsPlaceOnlyWhenCommitted) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", "old");
  OutputFile file(folder.path() / "file");
  file.write(std::string(1 << 20, 'x'));
  EXPECT_EQ(read_file(folder.path() / "file"), "old");
  file.write("end");
  file.commit();
  EXPECT_EQ(read_file(folder.path() / "file"), std::string(1 << 20, 'x') + "end");
}

TEST(OutputFile, IsOnTheDiskAfterASyncAndStillNotInPlace) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", "old");
  OutputFile file(folder.path() / "file");
  file.write("new");
  file.sync();
  EXPECT_EQ(read_file(folder.path() / temporary_in(folder)), "new");
  EXPECT_EQ(read_file(folder.path() / "file"), "old");
  file.commit();
  EXPECT_EQ(read_file(folder.path() / "file"), "new");
}

TEST(OutputFile, LeavesNothingWhenItIsNotCommitted) {
  const TemporaryFolder folder;
  {
    OutputFile file(folder.path() / "file");
    file.write(std::string(1 << 20, 'x'));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// In a folder that others write to, a user who guesses the name could have us overwrite any file.
TEST(OutputFile, FollowsNoLinkThatWaitsAtItsNextName) {
  const TemporaryFolder folder;
  const auto victim = folder.write("victim", "old"), path = folder.path() / "file";
  const auto planted = [&] {
    const OutputFile first(path);
    const std::string name = temporary_in(folder);
    const std::size_t digits = name.rfind('-') + 1;
    return name.substr(0, digits) + std::to_string(std::stoi(name.substr(digits)) + 1) + ".tmp";
  }();
  std::filesystem::create_symlink(victim, folder.path() / planted);
  OutputFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(read_file(victim), "old");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(temporary_in(folder), planted) << "another user's file, so it stays";
}

TEST(OutputFile, SaysWhyAFileCannotBeWritten) {
  const TemporaryFolder folder;
  EXPECT_THROW(OutputFile(folder.path() / "missing" / "file"), WriteError);
  OutputFile file("/dev/full");
  file.write("x");
  EXPECT_THROW(file.commit(), WriteError);
}

}  // namespace
}  // namespace headroom
