#include "headroom/base/output_file.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "tests/support/temporary_folder.h"

namespace headroom {
namespace {

using testing::TemporaryFolder;

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

TEST(OutputFile, LeavesNothingWhenItIsNotCommitted) {
  const TemporaryFolder folder;
  {
    OutputFile file(folder.path() / "file");
    file.write(std::string(1 << 20, 'x'));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
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
