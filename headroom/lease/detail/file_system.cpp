#include "headroom/lease/detail/file_system.h"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "headroom/base/error.h"

namespace headroom::lease::detail {
namespace {

struct Known {
  unsigned long kind;
  const char* name;
};

// From linux/magic.h and statfs(2), else from the sources of the file systems: ZFS (openzfs,
// include/sys/fs/zfs.h, ZFS_SUPER_MAGIC), bcachefs (fs/bcachefs/bcachefs_format.h,
// BCACHEFS_STATFS_MAGIC), JFS (fs/jfs/jfs_superblock.h, JFS_SUPER_MAGIC).
constexpr std::array<Known, 11> kLocal{{
    {0x01021994, "tmpfs"},
    {0x858458F6, "ramfs"},
    {0xEF53, "ext"},
    {0x58465342, "XFS"},
    {0x9123683E, "Btrfs"},
    {0x2FC12FC1, "ZFS"},
    {0xF2F52010, "F2FS"},
    {0xCA451A4E, "bcachefs"},
    {0x794C7630, "overlayfs"},
    {0x3153464A, "JFS"},
    {0x3434, "NILFS"},
}};

// Only names for the message that refuses them. Lustre (lustre_user.h, LL_SUPER_MAGIC), GPFS (IBM's
// gpfs.h, GPFS_SUPER_MAGIC), BeeGFS (client_module, BEEGFS_MAGIC), OCFS2 (ocfs2_fs.h). FUSE: the
// real file system is unknown.
constexpr std::array<Known, 14> kRefused{{
    {0x6969, "NFS"},
    {0x517B, "SMB"},
    {0xFF534D42, "CIFS"},
    {0xFE534D42, "SMB2"},
    {0x5346414F, "AFS"},
    {0x6B414653, "AFS"},
    {0x00C36400, "Ceph"},
    {0x0BD00BD0, "Lustre"},
    {0x47504653, "GPFS"},
    {0x01021997, "9P"},
    {0x73757245, "Coda"},
    {0x19830326, "BeeGFS"},
    {0x65735546, "FUSE"},
    {0x7461636F, "OCFS2"},
}};

// Some systems sign-extend the 32-bit number.
unsigned long number_of(long long kind) {
  return static_cast<unsigned long>(kind) & 0xFFFFFFFFUL;
}

template <std::size_t N>
const char* name_in(const std::array<Known, N>& table, long long kind) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Known& known) {
    return known.kind == number_of(kind);
  });
  return found == table.end() ? nullptr : found->name;
}

constexpr const char* kTry =
    "HEADROOM_LEASE_DIR=/dev/shm/headroom: all processes of this machine must see the folder, and "
    "no other machine may";

}  // namespace

bool carries_leases(long long kind) {
  return name_in(kLocal, kind) != nullptr;
}

std::string file_system_name(long long kind) {
  if (const char* name = name_in(kLocal, kind)) return name;
  if (const char* name = name_in(kRefused, kind)) return name;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "a file system of the unknown kind 0x%lx",
                number_of(kind));
  return text.data();
}

bool is_local(const std::filesystem::path& folder) {
  struct statfs facts {};
  const bool told =
      ::statfs(folder.c_str(), &facts) == 0 || ::statfs(folder.parent_path().c_str(), &facts) == 0;
  return told && carries_leases(static_cast<long long>(facts.f_type));
}

void require_local_file_system(const std::filesystem::path& folder) {
  struct statfs facts {};
  if (::statfs(folder.c_str(), &facts) != 0)
    throw UnavailableError(expectation("lease", "a folder for leases on a known file system",
                                       folder.string() + ": " + std::strerror(errno), kTry));
  const auto kind = static_cast<long long>(facts.f_type);
  if (!carries_leases(kind))
    throw UnavailableError(expectation("lease", "a local folder for leases",
                                       folder.string() + " on " + file_system_name(kind), kTry));
}

}  // namespace headroom::lease::detail
