#include "headroom/oom/host_watch.h"

#include <algorithm>
#include <string_view>

#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"
#include "headroom/oom/detail/kernel_log.h"

namespace headroom::oom {
namespace {

namespace fs = std::filesystem;

// The number of a line "oom_kill 3" among lines "name number".
std::optional<long long> counter(const std::optional<std::string>& file, std::string_view name) {
  if (!file) return {};
  for (const std::string_view line : split(*file, '\n')) {
    const std::size_t blank = line.find(' ');
    if (blank != std::string_view::npos && line.substr(0, blank) == name)
      return to_integer(trim(line.substr(blank + 1)));
  }
  return {};
}

struct Group {
  fs::path path;  // relative to the mount point of the groups
  bool unified = false;
};

// Our groups: "0::/user.slice/..." of version 2, "9:memory:/slurm/..." of version 1.
std::vector<Group> own_groups(const fs::path& root) {
  std::vector<Group> groups;
  const auto file = read_file(root / "proc/self/cgroup");
  if (!file) return groups;
  for (const std::string_view line : split(*file, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3 || !parts[2].starts_with('/')) continue;
    const bool unified = parts[1].empty();
    const auto controllers = split(parts[1], ',');
    const bool memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    const std::string_view path = line.substr(line.find(":/") + 2);
    if (unified || memory) groups.push_back({fs::path(path).lexically_normal(), unified});
  }
  return groups;
}

// The file that counts the kills in our group. A container often sees its own group as the root;
// then the root's file is ours.
std::optional<fs::path> counting_file(const fs::path& root) {
  for (const Group& group : own_groups(root)) {
    const fs::path mounted = root / (group.unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const char* name = group.unified ? "memory.events" : "memory.oom_control";
    for (const fs::path& folder : {mounted / group.path, mounted})
      if (counter(read_file(folder / name), "oom_kill")) return folder / name;
  }
  return {};
}

std::optional<long long> kills_in_group(const std::optional<fs::path>& file) {
  return file ? counter(read_file(*file), "oom_kill") : std::nullopt;
}

std::optional<long long> kills_on_machine(const fs::path& root) {
  return counter(read_file(root / "proc/vmstat"), "oom_kill");
}

// A counter that went back belongs to a group that was made again: it does not count as growth.
std::optional<long long> growth(std::optional<long long> before, std::optional<long long> now) {
  if (!before || !now) return {};
  return std::max(0LL, *now - *before);
}

}  // namespace

HostWatch::HostWatch(fs::path root)
    : root_(std::move(root)),
      counting_file_(counting_file(root_)),
      group_before_(kills_in_group(counting_file_)),
      machine_before_(kills_on_machine(root_)),
      kernel_log_(std::make_shared<detail::KernelLog>(root_ / "dev/kmsg")) {}

HostKills HostWatch::since(const std::vector<pid_t>& pids) const {
  HostKills pressure;
  pressure.kills_in_group = growth(group_before_, kills_in_group(counting_file_));
  pressure.kills_on_machine = growth(machine_before_, kills_on_machine(root_));
  // The machine's counter includes every kill in the kernel's log, also those in groups
  // (__oom_kill_process in mm/oom_kill.c): if it did not grow, the long log need not be read.
  if (pressure.kills_on_machine.value_or(1) > 0 &&
      ProcessTable(root_ / "proc").in_first_pid_namespace())
    pressure.kernel_line = kernel_log_->line_naming(pids);
  return pressure;
}

}  // namespace headroom::oom
