#include "headroom/lease/detail/file_system.h"

#include <algorithm>
#include <array>

namespace headroom::lease::detail {
namespace {

struct Known {
  unsigned long magic;
  const char* name;
};

// From linux/magic.h and statfs(2), and what is in neither from the sources of the file systems:
// Lustre (lustre_user.h, LL_SUPER_MAGIC), GPFS (IBM's gpfs.h, GPFS_SUPER_MAGIC), BeeGFS
// (client_module, BEEGFS_MAGIC).
constexpr std::array<Known, 14> kNetwork{{
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

}  // namespace

std::optional<std::string> network_file_system(long long magic) {
  // Some systems widen the 32 bits of the number with its sign.
  const unsigned long number = static_cast<unsigned long>(magic) & 0xFFFFFFFFUL;
  const auto found = std::find_if(kNetwork.begin(), kNetwork.end(),
                                  [&](const Known& known) { return known.magic == number; });
  if (found == kNetwork.end()) return {};
  return found->name;
}

}  // namespace headroom::lease::detail
