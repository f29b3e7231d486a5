#include "headroom/supervise/host_use.h"

#include <string>
#include <string_view>

#include "headroom/base/file.h"
#include "headroom/base/host_memory.h"
#include "headroom/base/text.h"

namespace headroom::supervise {
namespace {

using std::filesystem::path;

// "Max address space         1073741824           unlimited            bytes"
std::optional<Bytes> address_space_limit(std::string_view limits) {
  constexpr std::string_view kKey = "Max address space";
  for (std::string_view line : split(limits, '\n')) {
    if (!line.starts_with(kKey)) continue;
    const std::string_view soft = trim(line.substr(kKey.size()));
    if (const auto bytes = to_integer(soft.substr(0, soft.find(' ')))) return Bytes{*bytes};
  }
  return {};
}

}  // namespace

HostUse host_use(const std::vector<pid_t>& pids, const path& root) {
  Bytes resident;
  std::optional<HostUse> tightest;  // of the processes with their own limit
  for (const pid_t pid : pids) {
    const path process = root / "proc" / std::to_string(pid);
    const std::string status = read_file(process / "status").value_or("");
    resident += kib_field(status, "VmRSS:").value_or(Bytes{0});
    const auto limit = address_space_limit(read_file(process / "limits").value_or(""));
    const auto peak = kib_field(status, "VmPeak:");
    if (!limit || !peak || limit->count <= 0) continue;
    if (!tightest || ratio(*peak, *limit) > ratio(tightest->peak, *tightest->limit))
      tightest = HostUse{.peak = *peak, .limit = limit};
  }
  if (tightest) return *tightest;
  return {.peak = resident, .limit = host_memory(root).limit};
}

}  // namespace headroom::supervise
