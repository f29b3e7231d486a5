#include "headroom/machine/leftovers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/lease/directory.h"

namespace headroom::machine {
namespace {

namespace fs = std::filesystem;

void remove_file(const fs::path& path, Leftovers& leftovers) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error || !fs::remove(path, error)) return;
  leftovers.returned += Bytes{static_cast<std::int64_t>(size)};
  leftovers.done.push_back("removed " + path.string() + " (" +
                           to_string(Bytes{static_cast<std::int64_t>(size)}) + ")");
}

// The process that wrote "NAME.<pid>-<n>.tmp" (write_file_atomically); std::nullopt for other
// files.
std::optional<pid_t> writer_of(const std::string& name) {
  if (!name.ends_with(".tmp")) return {};
  const std::string_view stem = std::string_view(name).substr(0, name.size() - 4);
  const std::size_t dot = stem.rfind('.');
  if (dot == std::string_view::npos) return {};
  const auto parts = split(stem.substr(dot + 1), '-');
  const auto pid = to_integer(parts[0]);
  if (parts.size() != 2 || !pid || !to_integer(parts[1])) return {};
  return static_cast<pid_t>(*pid);
}

// The process that made "torch_<pid>_<random>_<n>", PyTorch's name for shared memory (torch/csrc,
// filename strategy).
std::optional<pid_t> torch_maker_of(const std::string& name) {
  const auto parts = split(name, '_');
  if (parts.size() < 3 || parts[0] != "torch") return {};
  const auto pid = to_integer(parts[1]);
  if (!pid || *pid <= 0) return {};
  return static_cast<pid_t>(*pid);
}

// Files of the folder that any process has mapped; std::nullopt if a process cannot be inspected,
// because the list would be incomplete.
std::optional<std::set<std::string>> mapped_files(const ProcessTable& processes,
                                                  const fs::path& folder) {
  std::set<std::string> mapped;
  for (const pid_t pid : processes.all()) {
    const auto files = processes.mapped(pid, folder);
    if (files) mapped.insert(files->begin(), files->end());
    if (!files && processes.stat(pid)) return {};
  }
  return mapped;
}

void remove_shared_memory(const ProcessTable& processes, const fs::path& folder,
                          Leftovers& leftovers) {
  if (!processes.in_first_pid_namespace()) {
    leftovers.done.push_back(
        "left shared memory alone: from this container, other users of it are invisible");
    return;
  }
  const auto mapped = mapped_files(processes, folder);
  if (!mapped) {
    leftovers.done.push_back(
        std::string("left shared memory alone: other users' processes may use it, ") +
        (::geteuid() == 0 ? "and some do not show what they have mapped"
                          : "and only root can see that"));
    return;
  }
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    const auto maker = torch_maker_of(file.path().filename().string());
    struct stat facts {};
    if (!maker || processes.stat(*maker) || mapped->contains(file.path().string())) continue;
    if (::stat(file.path().c_str(), &facts) != 0 || facts.st_uid != ::geteuid()) continue;
    remove_file(file.path(), leftovers);
  }
}

// Takes a turn, because a file that is being made has no lock yet.
void remove_dead_leases(bool of_all_users, Leftovers& leftovers) {
  try {
    const auto directory = lease::Directory::existing();
    if (!directory) return;
    const lease::Directory::Turn turn = directory->take_turn(Seconds(1));
    lease::Contents now = turn.contents();
    std::erase_if(now.dead, [&](const lease::DeadFile& file) {
      return !of_all_users && file.uid != ::geteuid();
    });
    for (const lease::DeadFile& file : turn.remove_dead(now)) {
      leftovers.returned += file.size;
      leftovers.done.push_back("removed " + file.path.string() + " (no process holds it)");
    }
  } catch (const Error& error) {
    leftovers.done.push_back("left the leases alone: " + error.sentence());
  }
}

}  // namespace

Leftovers remove_leftovers(const ProcessTable& processes, bool search_harder,
                           const fs::path& shared_memory) {
  Leftovers leftovers;
  std::error_code error;
  for (const auto& file : fs::recursive_directory_iterator(state_dir(), error)) {
    const auto writer = writer_of(file.path().filename().string());
    if (writer && !processes.stat(*writer)) remove_file(file.path(), leftovers);
  }
  remove_dead_leases(search_harder, leftovers);
  if (search_harder) remove_shared_memory(processes, shared_memory, leftovers);
  return leftovers;
}

}  // namespace headroom::machine
