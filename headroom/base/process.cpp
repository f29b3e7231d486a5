#include "headroom/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "headroom/base/descriptor.h"
#include "headroom/base/file.h"
#include "headroom/base/text.h"

extern char** environ;  // NOLINT: the name is set by POSIX

namespace headroom {
namespace {

WallTime boot_time(const std::filesystem::path& proc) {
  const std::string text = read_file(proc / "stat").value_or("");
  const std::size_t at = text.find("btime ");
  if (at == std::string::npos) return {};
  long long seconds = 0;
  std::from_chars(text.data() + at + 6, text.data() + text.size(), seconds);
  return WallTime(std::chrono::seconds(seconds));
}

}  // namespace

std::filesystem::path own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::string user_name(uid_t uid) {
  // A screen asks a hundred times a second for the same few names.
  static std::mutex guard;
  static std::map<uid_t, std::string> known;
  const std::lock_guard lock(guard);
  if (const auto name = known.find(uid); name != known.end()) return name->second;
  std::array<char, 4096> buffer;  // NOLINT: filled by getpwuid_r
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::to_string(uid);  // the server that knows it may be reachable the next time
  return known[uid] = entry.pw_name;
}

ProcessTable::ProcessTable(std::filesystem::path proc)
    : proc_(std::move(proc)), boot_(boot_time(proc_)) {}

std::optional<ProcessStat> ProcessTable::stat(pid_t pid) const {
  const auto text = read_file(proc_ / std::to_string(pid) / "stat");
  if (!text) return {};
  // The command name is in parentheses and may itself contain blanks and parentheses.
  const std::size_t close = text->rfind(')');
  if (close == std::string::npos || close + 2 >= text->size()) return {};
  const auto fields = split(std::string_view(*text).substr(close + 2), ' ');
  // fields[0] is field 3 of proc(5): the state.
  constexpr std::size_t kParent = 4 - 3, kUserTime = 14 - 3, kSystemTime = 15 - 3, kStart = 22 - 3;
  if (fields.size() <= kStart || fields[0].empty()) return {};
  const auto number = [&](std::size_t i) { return to_integer(fields[i]).value_or(0); };
  return ProcessStat{.identity = {pid, number(kStart)},
                     .parent = static_cast<pid_t>(number(kParent)),
                     .state = fields[0][0],
                     .cpu_ticks = number(kUserTime) + number(kSystemTime)};
}

std::optional<ProcessFacts> ProcessTable::facts(const ProcessStat& process) const {
  const auto folder = proc_ / std::to_string(process.identity.pid);
  struct stat owner {};
  if (::stat(folder.c_str(), &owner) != 0) return {};
  std::string command = read_file(folder / "cmdline").value_or("");
  while (!command.empty() && command.back() == '\0') command.pop_back();
  // headroom-engine does the work of `headroom`; its request, a document in JSON, is not for
  // people.
  if (constexpr std::string_view kEngine = "headroom-engine";
      command.substr(0, command.find('\0')).ends_with(kEngine)) {
    command.replace(0, command.find('\0'), "headroom");
    command.resize(std::min(command.size(), command.find(std::string_view("\0{", 2))));
  }
  if (command.empty())
    command = "[" + std::string(trim(read_file(folder / "comm").value_or("?"))) + "]";
  // without_controls() turns the NULs between arguments into blanks.
  const double since_boot = static_cast<double>(process.identity.start_ticks) /
                            static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ProcessFacts{
      .user = user_name(owner.st_uid),
      .uid = owner.st_uid,
      .command = without_controls(std::move(command)),
      .started = boot_ + std::chrono::duration_cast<WallTime::duration>(Seconds(since_boot))};
}

bool ProcessTable::alive(const ProcessIdentity& identity) const {
  const auto now = stat(identity.pid);
  return now && now->identity == identity && now->state != 'Z' && now->state != 'X';
}

bool ProcessTable::in_first_pid_namespace() const {
  // The kernel gives the first PID namespace this fixed number (PROC_PID_INIT_INO in
  // include/linux/proc_ns.h).
  std::error_code error;
  const auto link = std::filesystem::read_symlink(proc_ / "self/ns/pid", error);
  return !error && link == "pid:[4026531836]";
}

std::optional<bool> ProcessTable::holds_open(pid_t pid, std::string_view prefix) const {
  std::error_code error;
  std::filesystem::directory_iterator files(proc_ / std::to_string(pid) / "fd", error);
  if (error) return {};
  for (const auto& file : files) {
    const auto target = std::filesystem::read_symlink(file.path(), error).string();
    if (!error && target.starts_with(prefix)) return true;
  }
  return false;
}

std::optional<std::vector<std::string>> ProcessTable::mapped(
    pid_t pid, const std::filesystem::path& folder) const {
  const auto maps = read_file(proc_ / std::to_string(pid) / "maps");
  if (!maps) return {};
  std::vector<std::string> files;
  for (const std::string_view line : split(*maps, '\n'))
    if (const std::size_t at = line.find(folder.string() + "/"); at != std::string_view::npos)
      files.emplace_back(line.substr(at));
  return files;
}

std::vector<pid_t> ProcessTable::all() const {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(proc_, error))
    if (const auto pid = to_integer(entry.path().filename().string()))
      pids.push_back(static_cast<pid_t>(*pid));
  std::sort(pids.begin(), pids.end());
  return pids;
}

ProcessIdentity this_process() {
  const pid_t pid = ::getpid();
  const auto stat = ProcessTable().stat(pid);
  return stat ? stat->identity : ProcessIdentity{pid, 0};
}

std::vector<std::string> environment_with(const std::vector<std::string>& extra) {
  std::vector<std::string> result = extra;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto overrides = [&](const std::string& other) { return other.starts_with(name); };
    if (name.empty() || std::none_of(extra.begin(), extra.end(), overrides))
      result.emplace_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

CommandResult run_command(const std::vector<std::string>& argv, Seconds limit,
                          const std::vector<std::string>& extra) {
  CommandResult result;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return result;
  const Descriptor told(ends[0]);
  Descriptor tell(ends[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, tell.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> arguments = argv, variables = environment_with(extra);
  pid_t child = 0;
  result.started = !argv.empty() && ::posix_spawnp(&child, argv[0].c_str(), &actions, nullptr,
                                                   pointers_to(arguments).data(),
                                                   pointers_to(variables).data()) == 0;
  posix_spawn_file_actions_destroy(&actions);
  tell.close();
  if (!result.started) return result;

  constexpr std::size_t kKeep = 64 * 1024;
  const auto deadline = Clock::now() + limit;
  std::array<char, 4096> buffer;  // NOLINT: filled by read
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{told.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) == 0) {
      result.timed_out = true;
      ::kill(child, SIGKILL);
      break;
    }
    const ssize_t got = ::read(told.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    result.out.append(buffer.data(),
                      std::min(static_cast<std::size_t>(got), kKeep - result.out.size()));
  }

  // A command may close its output and keep running: the limit also covers its exit. A process that
  // survives SIGKILL for a second (stuck in the kernel) is left behind.
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() >= deadline + std::chrono::seconds(1)) return result;
    if (Clock::now() >= deadline && !std::exchange(result.timed_out, true)) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace headroom
