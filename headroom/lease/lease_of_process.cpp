#include "headroom/lease/lease_of_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <set>

namespace headroom::lease {
namespace {

// Only a writer holds the lease: any user may open its file for reading.
bool is_open_for_writing(int folder, const char* name) {
  struct stat link {};
  return ::fstatat(folder, name, &link, AT_SYMLINK_NOFOLLOW) == 0 && (link.st_mode & S_IWUSR) != 0;
}

// The leases that the process has open; none if this user may not see them. Runs for every process
// on a card at every look, so it makes few system calls.
std::set<FileNumber> open_leases(pid_t pid) {
  std::set<FileNumber> leases;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> files(::opendir(folder.c_str()), &::closedir);
  if (!files) return leases;
  std::array<char, PATH_MAX> target;  // NOLINT: filled by readlinkat
  while (const dirent* file = ::readdir(files.get())) {
    const ssize_t length =
        ::readlinkat(::dirfd(files.get()), file->d_name, target.data(), target.size());
    if (length <= 0) continue;  // "." and ".." are not links
    // Check the name first: stat() of a file on an unreachable server may hang.
    const std::string_view name(target.data(), static_cast<std::size_t>(length));
    struct stat facts {};
    if (name.ends_with(".lease") && is_open_for_writing(::dirfd(files.get()), file->d_name) &&
        ::fstatat(::dirfd(files.get()), file->d_name, &facts, 0) == 0)
      leases.insert({facts.st_dev, facts.st_ino});
  }
  return leases;
}

// The owner of a process is the owner of its folder in /proc.
bool belongs_to(pid_t pid, uid_t uid) {
  struct stat facts {};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &facts) == 0 && facts.st_uid == uid;
}

}  // namespace

Attribution::Attribution(const std::vector<Claim>& leases, ProcessTable processes)
    : leases_(leases), processes_(std::move(processes)) {}

const std::vector<std::size_t>& Attribution::own_leases(const ProcessIdentity& process) {
  const auto known = own_.find(process);
  if (known != own_.end()) return known->second;
  std::vector<std::size_t>& own = own_[process];
  const std::set<FileNumber> open = open_leases(process.pid);
  for (std::size_t i = 0; i < leases_.size(); ++i) {
    const Claim& lease = leases_[i];
    // A user cannot claim another user's process by naming it as the owner of a lease.
    const bool asked = lease.owner == process && is_this_pid_namespace(lease.pid_namespace) &&
                       belongs_to(process.pid, lease.uid);
    if (asked || open.contains(lease.file)) own.push_back(i);
  }
  return own;
}

const std::optional<ProcessStat>& Attribution::stat_of(pid_t pid) {
  const auto [known, is_new] = stats_.try_emplace(pid);
  if (is_new) known->second = processes_.stat(pid);
  return known->second;
}

std::string Attribution::lease_of(const gpu::GpuProcess& process, const gpu::Uuid& card) {
  if (!process.pid) return {};
  std::optional<ProcessStat> stat = stat_of(*process.pid);
  if (!stat || (process.start_ticks != 0 && stat->identity.start_ticks != process.start_ticks))
    return {};  // its number belongs to another process by now
  constexpr int kMostAncestors = 64;
  for (int i = 0; stat && i < kMostAncestors; ++i) {
    const Claim* found = nullptr;
    for (const std::size_t position : own_leases(stat->identity)) {
      const Claim& lease = leases_[position];
      if (reserved_on(lease, card).count == 0) continue;
      if (found != nullptr) return {};
      found = &lease;
    }
    if (found != nullptr) return found->id;
    stat = stat->parent > 0 ? stat_of(stat->parent) : std::nullopt;
  }
  return {};
}

std::optional<UsedByLease> Attribution::used_on(const gpu::Card& card) {
  const bool together = card.processes && card.sampled && card.processes_sampled &&
                        *card.processes_sampled >= *card.sampled;
  if (!together) return {};
  UsedByLease used;
  if (leases_.empty()) return used;
  for (const gpu::GpuProcess& process : *card.processes) {
    const std::string lease = lease_of(process, card.uuid);
    if (lease.empty()) continue;
    found_[{*process.pid, card.uuid}] = lease;
    if (process.used && process.used->count > 0) used[lease] += *process.used;
  }
  return used;
}

std::map<std::string, std::vector<pid_t>> descriptor_holders(const std::vector<Claim>& leases,
                                                             const ProcessTable& processes) {
  std::map<std::string, std::vector<pid_t>> holders;
  if (leases.empty()) return holders;
  for (const pid_t pid : processes.all()) {
    const std::set<FileNumber> open = open_leases(pid);
    for (const Claim& lease : leases)
      if (open.contains(lease.file)) holders[lease.id].push_back(pid);
  }
  return holders;
}

}  // namespace headroom::lease
