// The folder of leases: its place, the turns of its users, and failed writes.

#include "headroom/lease/directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "headroom/base/error.h"
#include "tests/lease/fixtures/children.h"
#include "tests/lease/fixtures/lease_folder.h"
#include "tests/support/file_size_limit.h"

namespace headroom::lease {
namespace {

using namespace fixtures;
using headroom::testing::FileSizeLimit;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The first user could make only the second folder; root, who can make both, once made the first,
// and from then on neither knew of the other's leases.
TEST_F(LeaseFolder, AnExistingFolderIsPreferredToANewOne) {
  const auto better = folder_.path() / "better";
  EXPECT_EQ(Directory::open({better, directory_.path()}).path(), directory_.path());
  EXPECT_FALSE(std::filesystem::exists(better));
  EXPECT_EQ(Directory::open({better, folder_.path() / "none"}).path(), better);
  EXPECT_EQ(Directory::open({better, directory_.path()}).path(), better) << "both are there";
}

// In a container whose own files are on FUSE there is still /dev/shm.
TEST_F(LeaseFolder, AFolderOnAnUnsuitableFileSystemIsSkipped) {
  EXPECT_EQ(Directory::open({"/proc/headroom", directory_.path()}).path(), directory_.path());
  EXPECT_EQ(Directory::existing({"/proc/self", directory_.path()})->path(), directory_.path());
  EXPECT_FALSE(Directory::existing({"/proc/headroom"}));
}

// ---- Turns ----

TEST_F(LeaseFolder, ATimeoutForATurnNamesItsHolder) {
  Child child([&] { static_cast<void>(new Directory::Turn(directory_.take_turn())); });
  ASSERT_TRUE(child.is_ready());
  try {
    static_cast<void>(directory_.take_turn(Seconds(0.05)));
    FAIL() << "two turns at once";
  } catch (const BusyError& error) {
    EXPECT_THAT(error.what(), HasSubstr("PID " + std::to_string(child.pid())));
  }
  child.kill();
  static_cast<void>(directory_.take_turn());  // its turn ended with it
}

TEST_F(LeaseFolder, ATurnEndsEvenIfAForkedProcessHasItsDescriptor) {
  std::optional<Directory::Turn> turn(directory_.take_turn());
  Child child([] {});
  ASSERT_TRUE(child.is_ready());
  turn.reset();
  static_cast<void>(directory_.take_turn(Seconds(1)));
}

// ---- Where nothing can be written ----

TEST_F(LeaseFolder, AFullDiskIsAWriteErrorAndLeavesNoFile) {
  {
    const FileSizeLimit full(10);
    EXPECT_THROW(lease(), WriteError);
  }
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_THAT(directory_.contents().leases, IsEmpty());
}

TEST_F(LeaseFolder, AReadOnlyFolderIsAWriteErrorAndCanStillBeRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Lease mine = lease();
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  const int answer = as_nobody([&] {
    if (directory_.contents().leases.size() != 1) return 1;
    try {
      static_cast<void>(lease());
    } catch (const WriteError&) {
      return 0;
    }
    return 2;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_THAT(directory_.warnings(), ElementsAre(HasSubstr("1777")));
}

TEST_F(LeaseFolder, IsWritableForAllUsers) {
  struct stat facts {};
  ASSERT_EQ(::stat(directory_.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 01777u);
}

TEST_F(LeaseFolder, AFileInPlaceOfTheFolderIsRefused) {
  EXPECT_THROW(static_cast<void>(Directory::at(folder_.write("file", "x"))), WriteError);
  std::filesystem::create_symlink(directory_.path(), folder_.path() / "link");
  EXPECT_THROW(static_cast<void>(Directory::at(folder_.path() / "link")), WriteError);
}

}  // namespace
}  // namespace headroom::lease
