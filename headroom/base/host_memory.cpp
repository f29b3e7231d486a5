#include "headroom/base/host_memory.h"

#include <algorithm>
#include <string>

#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom {
namespace {

using std::filesystem::path;

void take_smaller(std::optional<Bytes>& smallest, std::optional<Bytes> other) {
  if (other && (!smallest || *other < *smallest)) smallest = other;
}

std::optional<Bytes> number_in(const path& file) {
  const auto bytes = to_integer(trim(read_file(file).value_or("")));  // "max": no limit
  return bytes ? std::optional(Bytes{*bytes}) : std::nullopt;
}

// Cached pages of files that were not read lately; the kernel takes them first.
Bytes easily_freed(const path& group) {
  constexpr std::string_view kKey = "inactive_file ";
  const std::string text = read_file(group / "memory.stat").value_or("");
  for (const std::string_view line : split(text, '\n'))
    if (line.starts_with(kKey)) return Bytes{to_integer(line.substr(kKey.size())).value_or(0)};
  return {};
}

// Applies the limits and free memory of this process's control group and of those above it.
void look_at_groups(const path& root, HostMemory& memory) {
  const std::string own = read_file(root / "proc/self/cgroup").value_or("");
  const std::size_t start = own.find("0::/");
  if (start == std::string::npos) return;
  const path top = root / "sys/fs/cgroup";
  for (path group = top / own.substr(start + 4, own.find('\n', start) - start - 4);;
       group = group.parent_path()) {
    const auto limit = number_in(group / "memory.max"), used = number_in(group / "memory.current");
    take_smaller(memory.limit, limit);
    if (limit && used)
      take_smaller(memory.available,
                   std::clamp(*limit - *used + easily_freed(group), Bytes{}, *limit));
    if (group == top || group.string().size() <= top.string().size()) return;
  }
}

}  // namespace

std::optional<Bytes> kib_field(std::string_view text, std::string_view key) {
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.ends_with("kB")) line.remove_suffix(2);
    if (const auto kib = to_integer(trim(line))) return Bytes{*kib * 1024};
  }
  return {};
}

HostMemory host_memory(const path& root) {
  const std::string machine = read_file(root / "proc/meminfo").value_or("");
  HostMemory memory{.limit = kib_field(machine, "MemTotal:"),
                    .available = kib_field(machine, "MemAvailable:")};
  look_at_groups(root, memory);
  return memory;
}

std::optional<Bytes> host_memory_to_use() {
  const auto available = host_memory().available;
  return available ? std::optional(Bytes{available->count / 10 * 9}) : std::nullopt;
}

}  // namespace headroom
