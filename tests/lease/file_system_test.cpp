// Which file systems carry leases.

#include "headroom/lease/detail/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/lease/directory.h"
#include "tests/support/temporary_folder.h"

namespace headroom::lease {
namespace {

using headroom::testing::TemporaryFolder;
using ::testing::HasSubstr;

// statfs(2)'s numbers.
TEST(LeaseFileSystem, NetworkAndUnknownOnesCarryNoLeases) {
  for (const long long kind :
       {0x6969LL /* NFS */, 0xFF534D42LL /* CIFS */, 0xFE534D42LL /* SMB2 */,
        0x00C36400LL /* Ceph */, 0x0BD00BD0LL /* Lustre */, 0x47504653LL /* GPFS */,
        0x01021997LL /* 9P */, 0x65735546LL /* FUSE */, 0x01161970LL /* GFS2 */, 0LL, -1LL})
    EXPECT_FALSE(detail::carries_leases(kind)) << std::hex << kind;
}

TEST(LeaseFileSystem, LocalOnesCarryLeases) {
  for (const long long kind :
       {0x01021994LL /* tmpfs */, 0xEF53LL /* ext4 */, 0x58465342LL /* xfs */,
        0x9123683ELL /* btrfs */, 0x2FC12FC1LL /* zfs */, 0xF2F52010LL /* f2fs */,
        0x794C7630LL /* overlay */, 0xCA451A4ELL /* bcachefs */})
    EXPECT_TRUE(detail::carries_leases(kind)) << std::hex << kind;
  EXPECT_TRUE(detail::carries_leases(static_cast<int>(0x9123683E))) << "with its sign";
}

TEST(LeaseFileSystem, HaveNames) {
  EXPECT_EQ(detail::file_system_name(0x6969), "NFS");
  EXPECT_EQ(detail::file_system_name(static_cast<int>(0xFF534D42)), "CIFS") << "with its sign";
  EXPECT_THAT(detail::file_system_name(0x01161970), HasSubstr("0x1161970"));
}

std::string refusal(const std::filesystem::path& folder) {
  try {
    detail::require_local_file_system(folder);
  } catch (const UnavailableError& error) {
    return error.what();
  }
  return "";
}

TEST(LeaseFileSystem, AnUnknownOneIsRefusedWithTheReason) {
  EXPECT_THAT(refusal("/no/such/folder"), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal("/proc"), HasSubstr("unknown kind 0x9fa0"));
  EXPECT_EQ(refusal(TemporaryFolder().path()), "");
}

// Sets the variable for as long as this lives.
class LeaseDir {
 public:
  explicit LeaseDir(const std::string& folder) {
    ::setenv("HEADROOM_LEASE_DIR", folder.c_str(), 1);
  }
  ~LeaseDir() {
    if (before_)
      ::setenv("HEADROOM_LEASE_DIR", before_->c_str(), 1);
    else
      ::unsetenv("HEADROOM_LEASE_DIR");
  }
  LeaseDir(const LeaseDir&) = delete;
  LeaseDir& operator=(const LeaseDir&) = delete;

 private:
  const std::optional<std::string> before_ = environment("HEADROOM_LEASE_DIR");
};

TEST(LeaseFileSystem, AnUnsuitableOneIsRefusedEvenForReading) {
  const LeaseDir proc("/proc");
  EXPECT_THROW(static_cast<void>(Directory::existing()), UnavailableError);
  EXPECT_THROW(static_cast<void>(Directory::open()), UnavailableError);
}

}  // namespace
}  // namespace headroom::lease
