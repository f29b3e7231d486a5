#include "headroom/job/detail/process_tree.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "headroom/base/descriptor.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"

namespace headroom::job {
namespace {

// The kernel's list, one file per thread (CONFIG_PROC_CHILDREN); std::nullopt if the kernel has
// none.
std::optional<std::vector<pid_t>> listed_children(pid_t pid) {
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  std::vector<pid_t> children;
  DIR* folder = ::opendir(tasks.c_str());
  if (folder == nullptr) return children;
  bool kept = true;
  while (const dirent* task = ::readdir(folder)) {
    if (task->d_name[0] == '.') continue;
    const auto list = read_file(tasks / task->d_name / "children");
    // The thread has ended, or the kernel keeps no list; our own thread has not ended.
    if (!list && ::access((tasks / task->d_name).c_str(), F_OK) == 0) kept = false;
    if (!list) continue;
    for (const std::string_view number : split(trim(*list), ' '))
      if (const auto child = to_integer(number)) children.push_back(static_cast<pid_t>(*child));
  }
  ::closedir(folder);
  if (!kept) return {};
  return children;
}

std::vector<pid_t> children_of(pid_t pid, const ProcessTable& table) {
  if (auto children = listed_children(pid)) return *std::move(children);
  std::vector<pid_t> children;
  for (const pid_t candidate : table.all())
    if (const auto stat = table.stat(candidate); stat && stat->parent == pid)
      children.push_back(candidate);
  return children;
}

bool has_ended(const ProcessStat& process) {
  return process.state == 'Z' || process.state == 'X';
}

}  // namespace

ProcessTree::ProcessTree() {
  for (const pid_t child : own_children())
    if (const auto stat = table_.stat(child)) strangers_.insert(stat->identity);
  ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper_before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

ProcessTree::~ProcessTree() {
  ::prctl(PR_SET_CHILD_SUBREAPER, subreaper_before_);
}

std::vector<pid_t> ProcessTree::own_children() const {
  return children_of(::getpid(), table_);
}

bool ProcessTree::is_of_job(const ProcessStat& child) const {
  return !strangers_.contains(child.identity) && ::getpgid(child.identity.pid) != ::getpgrp();
}

std::vector<ProcessIdentity> ProcessTree::living() const {
  std::vector<ProcessIdentity> found;
  for (const pid_t child : own_children())
    if (const auto stat = table_.stat(child); stat && is_of_job(*stat) && !has_ended(*stat))
      found.push_back(stat->identity);
  // A process whose parent changes during the walk may be met twice.
  std::set<pid_t> seen;
  for (const ProcessIdentity& process : found) seen.insert(process.pid);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const pid_t child : children_of(found[i].pid, table_))
      if (const auto stat = table_.stat(child);
          stat && !has_ended(*stat) && seen.insert(child).second)
        found.push_back(stat->identity);
  return found;
}

std::string ProcessTree::command_of(const ProcessIdentity& process) const {
  const auto stat = table_.stat(process.pid);
  if (!stat || stat->identity != process) return "";
  const auto facts = table_.facts(*stat);
  return facts ? facts->command : "";
}

void ProcessTree::signal(const ProcessIdentity& process, int signal) const {
  const Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  const bool old_system = !handle.is_open() && errno == ENOSYS;
  // While the handle is open the number is not reused, so the process checked here gets the signal.
  if (!table_.alive(process)) return;
  if (old_system)
    ::kill(process.pid, signal);
  else if (handle.is_open())
    ::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
}

bool ProcessTree::collect(pid_t command) {
  siginfo_t unused{};
  if (::waitid(P_ALL, 0, &unused, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
  bool left = false, collected = true;
  // A process that ended during the walk left children that were not listed yet.
  while (collected) {
    left = collected = false;
    for (const pid_t child : own_children()) {
      const auto stat = table_.stat(child);
      if (!stat || child == command || !is_of_job(*stat)) continue;
      if (has_ended(*stat) && ::waitpid(child, nullptr, WNOHANG) == child)
        collected = true;
      else
        left = true;
    }
  }
  return !left;
}

}  // namespace headroom::job
