#include "headroom/base/lock_holder.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>

#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom {

// From /proc/locks: "1: FLOCK  ADVISORY  WRITE 1234 00:19:5678 0 EOF".
std::string lock_holder(const std::filesystem::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "another process";
  char place[64];
  std::snprintf(place, sizeof place, " %02x:%02x:%llu ", major(facts.st_dev), minor(facts.st_dev),
                static_cast<unsigned long long>(facts.st_ino));
  const std::string locks = read_file("/proc/locks").value_or("");
  for (const std::string_view line : split(locks, '\n')) {
    const std::size_t at = line.find(place);
    if (at == std::string_view::npos || line.find("FLOCK") == std::string_view::npos ||
        line.find("->") != std::string_view::npos)
      continue;
    const std::string_view before = line.substr(0, at);
    return "PID " + std::string(before.substr(before.rfind(' ') + 1));
  }
  return "another process";
}

}  // namespace headroom
