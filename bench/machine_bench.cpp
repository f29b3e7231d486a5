// The cost of looking at a machine: a fake box of 8 cards with 40 processes (tests/fake_nvml),
// queried by the real program.
//
//   bench_machine gpus HEADROOM FAKE_NVML [runs]     `headroom gpus --json`: wall time, memory
//   bench_machine log HEADROOM FAKE_NVML [seconds]   `headroom log --processes` at 1 Hz: CPU time
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/file.h"
#include "headroom/base/time.h"

extern char** environ;  // NOLINT: POSIX names it so

namespace {

namespace fs = std::filesystem;
using headroom::Clock;
using headroom::Seconds;

// 40 real processes, so that owner and command line are read as they are on a real machine.
class FakeBox {
 public:
  FakeBox()
      : folder_(fs::temp_directory_path() / ("headroom-bench-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    std::string cards;
    for (int card = 0; card < 8; ++card) {
      std::string processes;
      for (int i = 0; i < 5; ++i) {
        const pid_t pid = start({"sleep", "600"}, false);
        sleepers_.push_back(pid);
        processes += (i > 0 ? "," : "") + std::string("{\"pid\":") + std::to_string(pid) +
                     ",\"used\":\"4GiB\"}";
      }
      cards += (card > 0 ? "," : "") +
               std::string("{\"total\":\"24GiB\",\"reserved\":\"400MiB\",") + "\"processes\":[" +
               processes + "]}";
    }
    headroom::write_file_atomically(file(), "{\"cards\":[" + cards + "]}");
    ::setenv("HEADROOM_FAKE_NVML", file().c_str(), 1);
  }
  ~FakeBox() {
    for (const pid_t pid : sleepers_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    fs::remove_all(folder_);
  }
  FakeBox(const FakeBox&) = delete;
  FakeBox& operator=(const FakeBox&) = delete;

  static pid_t start(std::vector<std::string> words, bool quiet) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (quiet) posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    if (::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) {
      std::perror(words[0].c_str());
      std::exit(1);
    }
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

 private:
  [[nodiscard]] std::string file() const { return (folder_ / "box.json").string(); }

  fs::path folder_;
  std::vector<pid_t> sleepers_;
};

struct Cost {
  double wall_s, cpu_s;
  long rss_kib;
};

Cost run_and_measure(const std::vector<std::string>& words) {
  const auto start = Clock::now();
  const pid_t pid = FakeBox::start(words, true);
  rusage usage{};
  int status = 0;
  ::wait4(pid, &status, 0, &usage);
  const double wall = Seconds(Clock::now() - start).count();
  if (status != 0) {
    std::fprintf(stderr, "%s ended with status %d\n", words[0].c_str(), status);
    std::exit(1);
  }
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {wall, seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss};
}

void bench_gpus(const std::string& headroom, int runs) {
  std::vector<double> walls;
  long rss = 0;
  for (int i = 0; i < runs; ++i) {
    const Cost cost = run_and_measure({headroom, "gpus", "--json"});
    walls.push_back(cost.wall_s * 1e3);
    rss = std::max(rss, cost.rss_kib);
  }
  std::sort(walls.begin(), walls.end());
  const std::size_t n = walls.size();
  std::printf(
      "headroom gpus --json, 8 cards, 40 processes, %d runs: median %.1f ms, best %.1f ms, "
      "95 %% under %.1f ms; at most %.1f MiB resident\n",
      runs, walls[n / 2], walls[0], walls[n - 1 - n / 20], static_cast<double>(rss) / 1024);
}

void bench_log(const std::string& headroom, int seconds) {
  const Cost cost = run_and_measure(
      {headroom, "log", "--processes", "--interval", "1s", "--count", std::to_string(seconds)});
  // `count` samples span count - 1 seconds; what starting costs is in the CPU time.
  std::printf(
      "headroom log --processes at 1 Hz, 8 cards, 40 processes: %.1f ms CPU in %.1f s = "
      "%.3f %% of a core; %.1f MiB resident\n",
      cost.cpu_s * 1e3, cost.wall_s, 100 * cost.cpu_s / cost.wall_s,
      static_cast<double>(cost.rss_kib) / 1024);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (argc < 4 || (words[1] != "gpus" && words[1] != "log")) {
    std::fprintf(stderr, "usage: bench_machine gpus|log HEADROOM FAKE_NVML [runs|seconds]\n");
    return 64;
  }
  ::setenv("HEADROOM_NVML", words[3].c_str(), 1);
  const FakeBox box;
  const int number = argc > 4 ? std::atoi(words[4].c_str()) : 0;
  if (words[1] == "gpus") bench_gpus(words[2], number > 0 ? number : 50);
  if (words[1] == "log") bench_log(words[2], number > 0 ? number : 60);
  return 0;
}
