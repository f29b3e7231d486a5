#include "tests/cli/headroom_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"

namespace headroom::testing {
namespace {

constexpr Seconds kPatience{60};

void breathe() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(Arguments command, std::vector<std::string> variables, const std::string& out,
            const std::string& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  // The runner of the tests may ignore signals (nohup, a job in the background); a user does not.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, command[0].c_str(), &actions, &attributes,
                                   pointers_to(command).data(), pointers_to(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + command[0]);
  return pid;
}

}  // namespace

Json Outcome::json() const {
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1) << out;
  EXPECT_TRUE(out.ends_with('\n')) << out;
  try {
    return Json::parse(out);
  } catch (const Json::exception& error) {
    ADD_FAILURE() << error.what() << "\nstdout: " << out << "\nstderr: " << err;
    return {};
  }
}

// ---- A process ----

Running::~Running() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool Running::collect(int options) {
  int status = 0;
  if (ended_ || ::waitpid(pid_, &status, options) != pid_) return ended_;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended_ = true;
}

std::string Running::out() const {
  return read_file(out_path_).value_or("");
}
std::string Running::err() const {
  return read_file(err_path_).value_or("");
}

bool Running::until(const std::function<bool(const Running&)>& enough) {
  for (const auto begin = Clock::now(); Clock::now() - begin < kPatience / 2; breathe()) {
    if (enough(*this)) return true;
    if (collect(WNOHANG)) return enough(*this);
  }
  return false;
}

bool Running::until_err_has(const std::string& text) {
  return until([&](const Running& r) { return r.err().find(text) != std::string::npos; });
}

void Running::signal(int number) const {
  ::kill(pid_, number);
}

Outcome Running::wait() {
  const auto begin = Clock::now();
  while (!collect(WNOHANG)) {
    if (Clock::now() - begin > kPatience) {
      ADD_FAILURE() << "it does not end; stderr: " << err();
      ::kill(pid_, SIGKILL);
      collect(0);
    }
    breathe();
  }
  return {.exit_code = exit_code_, .out = out(), .err = err()};
}

// ---- Its world ----

World::World() {
  for (const char* name :
       {"PATH", "TMPDIR", "USER", "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"})
    if (const auto value = environment(name)) set(name, *value);
  set("HOME", folder_.path());
  set("TERM", "xterm-256color");
  set("LC_ALL", "C.UTF-8");
  set("HEADROOM_STATE_DIR", state());
  set("HEADROOM_LEASE_DIR", path("leases"));
  set("HEADROOM_NVML", path("no-driver.so"));
  // Found at once and never started: no test depends on which torch this machine has.
  folder_.write("torch/version.py", "__version__ = '2.10.0'\ncuda = None\n");
  folder_.write("torch/lib/libtorch_cpu.so", "");
  set("HEADROOM_TORCH", path("torch"));
}

void World::driver(const Json& state) {
  write_file_atomically(path("machine.json"), state.dump());
  if (!variables_.contains("HEADROOM_FAKE_NVML")) set("HEADROOM_NVML", FAKE_NVML);
  set("HEADROOM_FAKE_NVML", path("machine.json"));
}

std::unique_ptr<Running> World::start_program(const Arguments& command) const {
  static std::atomic<int> count{0};
  const std::string name = path("run-" + std::to_string(count++));
  std::vector<std::string> variables;
  for (const auto& [variable, value] : variables_) variables.push_back(variable + "=" + value);
  const std::string out = stdout_path_.empty() ? name + ".out" : stdout_path_;
  const pid_t pid = spawn(command, variables, out, name + ".err");
  return std::make_unique<Running>(pid, stdout_path_.empty() ? out : "", name + ".err");
}

std::unique_ptr<Running> World::start(const Arguments& arguments) const {
  Arguments command{HEADROOM_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return start_program(command);
}

Outcome World::headroom(const Arguments& arguments) const {
  return start(arguments)->wait();
}

Outcome World::run(const Arguments& command) const {
  return start_program(command)->wait();
}

// ---- Holders of memory ----

Holder::Holder(Kind kind, const std::string& command) : child_(kind == Kind::child) {
  if (child_) {
    pid_ = spawn({"sh", "-c", "exec " + command}, {"PATH=/usr/bin:/bin"}, "/dev/null", "/dev/null");
    // The shell becomes the command: only then is it the one a test expects.
    const auto is_shell = [&] {
      const auto name = read_file("/proc/" + std::to_string(pid_) + "/comm").value_or("");
      return name != "sleep\n";
    };
    for (const auto begin = Clock::now(); is_shell() && Clock::now() - begin < kPatience;)
      breathe();
    return;
  }
  const auto started = run_command({"sh", "-c", command + " >/dev/null 2>&1 & echo $!"}, kPatience);
  pid_ = static_cast<pid_t>(to_integer(trim(started.out)).value_or(0));
  EXPECT_GT(pid_, 0);
}

Holder::~Holder() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  if (child_) ::waitpid(pid_, nullptr, 0);
}

bool Holder::alive() const {
  const ProcessTable processes;
  const auto stat = processes.stat(pid_);
  return stat && processes.alive(stat->identity);
}

bool pids_are_ours() {
  return ProcessTable().in_first_pid_namespace();
}

// ---- The fake driver's state ----

Json card(const std::string& total, const std::vector<Json>& processes) {
  Json json{{"total", total}};
  if (!processes.empty()) json["processes"] = processes;
  return json;
}

Json process(pid_t pid, const std::string& used) {
  return {{"pid", pid}, {"used", used}};
}

Json machine(const std::vector<Json>& cards, const std::vector<Json>& faults) {
  return {{"cards", cards}, {"faults", faults}};
}

Json hang(const std::string& function, int after) {
  return {{"function", function}, {"after", after}, {"do", "hang"}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const auto line : split(text, '\n')) lines.emplace_back(line);
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace headroom::testing
