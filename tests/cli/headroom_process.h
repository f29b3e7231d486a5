// The real `headroom`, run as a process in a world of its own: its own state folder, its own
// environment, and a driver only if the test gives it one.
//
//   World world;
//   world.driver({{"cards", {{{"total", "24GiB"}}}}});
//   const Outcome outcome = world.headroom({"gpus", "--json"});
//   EXPECT_EQ(outcome.exit_code, 0);
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "tests/support/temporary_folder.h"

namespace headroom::testing {

inline constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

struct Outcome {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;

  // Standard output as the one JSON document it has to be: one line and nothing else.
  [[nodiscard]] Json json() const;
};

// A started process. The destructor kills and collects it if wait() was not called.
class Running {
 public:
  Running(pid_t pid, std::string out_path, std::string err_path)
      : pid_(pid), out_path_(std::move(out_path)), err_path_(std::move(err_path)) {}
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string out() const;
  [[nodiscard]] std::string err() const;
  // Waits until the predicate is true; false if the process ended or 30 s passed before that.
  [[nodiscard]] bool until(const std::function<bool(const Running&)>& enough);
  [[nodiscard]] bool until_err_has(const std::string& text);
  void signal(int number) const;
  // Waits for its end, at most 60 s.
  Outcome wait();

 private:
  bool collect(int options);

  pid_t pid_;
  std::string out_path_, err_path_;
  int exit_code_ = -1;
  bool ended_ = false;
};

using Arguments = std::vector<std::string>;

class World {
 public:
  World();

  // A machine with this state of the fake driver (tests/fake_nvml/README.md); again: a change.
  void driver(const Json& state);
  void set(const std::string& name, const std::string& value) { variables_[name] = value; }
  // Where standard output goes instead of a file that is read afterwards: "/dev/full".
  void standard_output(std::string path) { stdout_path_ = std::move(path); }

  [[nodiscard]] Outcome headroom(const Arguments& arguments) const;
  [[nodiscard]] std::unique_ptr<Running> start(const Arguments& arguments) const;
  // Any other program in the same world.
  [[nodiscard]] Outcome run(const Arguments& command) const;
  [[nodiscard]] std::unique_ptr<Running> start_program(const Arguments& command) const;

  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  [[nodiscard]] std::filesystem::path state() const { return folder_.path() / "state"; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path() / name; }

 private:
  TemporaryFolder folder_;
  std::map<std::string, std::string> variables_;
  std::string stdout_path_;
};

// A process of its own kind to hold memory: `sleep`, which does nothing at all.
class Holder {
 public:
  enum class Kind { child, orphan };  // of this test, or of a parent that is gone
  explicit Holder(Kind kind, const std::string& command = "sleep 1000");
  ~Holder();
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool alive() const;

 private:
  pid_t pid_ = 0;
  bool child_;
};

// True if the driver's process numbers are ours. In a container they are not, and headroom then
// rightly lists no process.
[[nodiscard]] bool pids_are_ours();

// One card of the fake driver's state.
[[nodiscard]] Json card(const std::string& total, const std::vector<Json>& processes = {});
[[nodiscard]] Json process(pid_t pid, const std::string& used);
[[nodiscard]] Json machine(const std::vector<Json>& cards, const std::vector<Json>& faults = {});
[[nodiscard]] Json hang(const std::string& function, int after = 0);

[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

}  // namespace headroom::testing
