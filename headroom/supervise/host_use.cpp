#include "headroom/supervise/host_use.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom::supervise {
namespace {

using std::filesystem::path;

// The number after `key` in lines such as "Key: 123 kB"; in /proc a kB is 1024 bytes.
std::optional<Bytes> kib_field(std::string_view text, std::string_view key) {
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.ends_with("kB")) line.remove_suffix(2);
    if (const auto kib = to_integer(trim(line))) return Bytes{*kib * 1024};
  }
  return {};
}

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

void take_smaller(std::optional<Bytes>& smallest, std::optional<Bytes> other) {
  if (other && (!smallest || *other < *smallest)) smallest = other;
}

// The limits of our control group (version 2) and of those above it.
std::optional<Bytes> group_limit(const path& root) {
  const std::string own = read_file(root / "proc/self/cgroup").value_or("");
  const std::size_t start = own.find("0::/");
  if (start == std::string::npos) return {};
  const path group = own.substr(start + 4, own.find('\n', start) - start - 4);
  std::optional<Bytes> limit;
  const path top = root / "sys/fs/cgroup";
  for (path folder = top / group;; folder = folder.parent_path()) {
    const std::string text = read_file(folder / "memory.max").value_or("");
    if (const auto bytes = to_integer(trim(text))) take_smaller(limit, Bytes{*bytes});
    if (folder == top || folder.string().size() <= top.string().size()) return limit;
  }
}

std::optional<Bytes> machine_limit(const path& root) {
  std::optional<Bytes> limit = group_limit(root);
  take_smaller(limit, kib_field(read_file(root / "proc/meminfo").value_or(""), "MemTotal:"));
  return limit;
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
  return {.peak = resident, .limit = machine_limit(root)};
}

}  // namespace headroom::supervise
