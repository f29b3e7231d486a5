// The folder of a training, of all weights or of adapters beside frozen ones, through twelve events
// in a random order: runs that end, are killed, stopped, or meet a full disk; forgotten settings;
// checkpoints that are deleted or damaged; files of the user's. Nothing is lost, and a run that
// ends has the weights of an undisturbed one.
//
// HEADROOM_STORM_RUNS=300 HEADROOM_STORM_SEED=1: the long form (`make stress-folder`).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "headroom/base/file.h"
#include "headroom/base/run_folder.h"
#include "headroom/base/sha256.h"
#include "headroom/base/text.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 40;

// ---- What a folder holds ----

bool is_sound(const fs::path& checkpoint) {
  Json state = Json::parse(read_file(checkpoint / "state.json").value_or(""), nullptr, false);
  if (!state.is_object() || !state.contains("sha256")) return false;
  const Json hashes = state["sha256"];
  state["sha256"].erase("state.json");
  Sha256 own;
  own.add(state.dump());
  if (own.hex() != hashes.value("state.json", "")) return false;
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "random.safetensors"})
    if (!fs::exists(checkpoint / name) ||
        sha256_of_file(checkpoint / name) != hashes.value(name, ""))
      return false;
  if (!state.contains("frozen")) return true;
  const std::string hash = state["frozen"].get<std::string>();
  for (const fs::path& folder : {checkpoint.parent_path(), checkpoint.parent_path().parent_path()})
    if (const fs::path part = folder / frozen_part_name(hash); fs::exists(part))
      return sha256_of_file(part) == hash;
  return false;
}

struct Checkpoints {
  int all = 0;
  int newest_sound = -1;  // step
};

Checkpoints checkpoints_of(const fs::path& out) {
  Checkpoints found;
  for (const fs::path& folder : {out, out / "best"})
    for (const CheckpointFolder& one : checkpoints_in(folder)) {
      ++found.all;
      if (is_sound(one.path))
        found.newest_sound = std::max(found.newest_sound, static_cast<int>(one.step));
    }
  return found;
}

double best_loss(const fs::path& out) {
  for (const CheckpointFolder& one : checkpoints_in(out / "best"))
    if (is_sound(one.path)) {
      const Json state = Json::parse(read_file(one.path / "state.json").value_or(""));
      return Json::parse(state["more"].get<std::string>())["evaluation"]["loss"].get<double>();
    }
  return 1e30;
}

struct Contents {
  std::multiset<std::string> states;  // of sound checkpoints, wherever they are
  std::set<std::string> records;      // lines of metrics
  int results = 0;
  Checkpoints checkpoints;
  double best = 1e30;
};

Contents contents_of(const fs::path& out) {
  Contents all{.checkpoints = checkpoints_of(out), .best = best_loss(out)};
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(out, error)) {
    const fs::path& path = entry.path();
    const std::string name = path.filename().string();
    if (name.starts_with("metrics")) {
      std::istringstream lines(read_file(path).value_or(""));
      for (std::string line; std::getline(lines, line);)
        if (Json::accept(line)) all.records.insert(line);
    }
    if (name == "state.json" && is_sound(path.parent_path()))
      all.states.insert(read_file(path).value_or(""));
    if (name == "model.safetensors" && path.parent_path().filename() == "model") ++all.results;
  }
  return all;
}

// ---- The twelve events ----

class Storm {
 public:
  Storm(const TrainingWorld& world, Arguments settings, std::string expected, std::uint32_t seed)
      : world_(world),
        settings_(std::move(settings)),
        expected_(std::move(expected)),
        random_(seed) {
    fs::remove_all(world_.path("storm"));
    out_ = world_.path("storm");
  }

  void run() {
    std::vector<int> events(12);
    std::iota(events.begin(), events.end(), 0);
    std::shuffle(events.begin(), events.end(), random_);
    for (const int event : events) {
      told_ += " " + std::to_string(event);
      SCOPED_TRACE("after events" + told_);
      happen(event);
      if (::testing::Test::HasFailure()) return;
    }
    SCOPED_TRACE("at the end, after events" + told_);
    to_the_end(resume(forgotten()));
  }
  [[nodiscard]] int processes() const { return processes_; }
  [[nodiscard]] int ended() const { return ended_; }  // with the right weights

 private:
  void happen(int event) {
    switch (event) {
      case 0:
        return to_the_end(fresh());
      case 1:
        return interrupted(fresh(), SIGKILL);
      case 2:
        return interrupted(resume(all_settings()), SIGKILL);
      case 3:
        return interrupted(resume(forgotten()), SIGKILL);
      case 4:
        return to_the_end(resume(forgotten()));
      case 5:
        return interrupted(resume(by_its_config()), SIGTERM);
      case 6:
        return remove_newest();
      case 7:
        return remove_all_but_the_best();
      case 8:
        return damage_newest();
      case 9:
        return on_a_full_disk(resume(forgotten()));
      case 10:
        return add_files_of_the_users();
      default:
        return interrupted(resume(all_settings()), SIGUSR1);
    }
  }

  // ---- Commands

  [[nodiscard]] Arguments all_settings() const {
    return settings_ + Arguments{"out=" + out_.string()};
  }
  // A run that was killed before its first step has left no settings.
  [[nodiscard]] Arguments forgotten() const {
    return fs::exists(out_ / "config.yaml") ? Arguments{"out=" + out_.string()} : all_settings();
  }
  [[nodiscard]] Arguments by_its_config() const {
    return fs::exists(out_ / "config.yaml") ? Arguments{"--config", (out_ / "config.yaml").string()}
                                            : all_settings();
  }
  struct Command {
    Arguments arguments;
    bool resumes;
  };
  [[nodiscard]] Command fresh() const { return {all_settings() + Arguments{"--json"}, false}; }
  [[nodiscard]] static Command resume(const Arguments& settings) {
    return {settings + Arguments{"--resume", "--json"}, true};
  }

  // ---- Runs

  void to_the_end(const Command& command) {
    const Contents before = contents_of(out_);
    const Outcome outcome = world_.train(command.arguments);
    const bool is_refused =
        command.resumes && before.checkpoints.all > 0 && before.checkpoints.newest_sound < 0;
    EXPECT_EQ(outcome.exit_code, is_refused ? 65 : 0) << outcome.err;
    check(command, before, outcome);
  }

  // After some changes of its records.
  void interrupted(const Command& command, int signal) {
    const Contents before = contents_of(out_);
    const auto running = world_.start_training(command.arguments);
    std::string last = metrics();
    int left = 1 + static_cast<int>(random_() % 12);
    const bool works = running->until([&](const Running&) {
      const std::string now = metrics();
      if (now != last) --left;
      last = now;
      return left <= 0;
    });
    if (works) running->signal(signal);
    if (works && signal == SIGUSR1 && running->until_err_has("checkpoint of step"))
      running->signal(random_() % 2 == 0 ? SIGKILL : SIGINT);
    const Outcome outcome = running->wait();
    EXPECT_THAT(outcome.exit_code,
                ::testing::AnyOf(0, 65, 128 + SIGKILL, 128 + SIGTERM, 128 + SIGINT))
        << outcome.err;
    check(command, before, outcome);
  }

  // No file beyond 20 KiB: that of the weights is larger.
  void on_a_full_disk(const Command& command) {
    const Contents before = contents_of(out_);
    std::string words = HEADROOM_BINARY " train";
    for (const std::string& one : command.arguments) words += " '" + one + "'";
    const Outcome outcome = world_.run({"sh", "-c", "ulimit -f 40; exec " + words});
    const bool has_a_sound_one =
        before.checkpoints.all == 0 || before.checkpoints.newest_sound >= 0;
    const bool is_small = settings_.front() != "model=full";  // an adapter is written
    if (!has_a_sound_one || !is_small) {
      EXPECT_EQ(outcome.exit_code, has_a_sound_one ? 73 : 65) << outcome.err;
    }
    check(command, before, outcome);
  }

  // ---- Checkpoints that go

  void remove_newest() {
    const auto all = checkpoints_in(out_);
    if (!all.empty()) remove(all.front().path);
  }
  void remove_all_but_the_best() {
    for (const CheckpointFolder& one : checkpoints_in(out_)) remove(one.path);
  }
  void remove(const fs::path& folder) {
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) users_.erase(read_file(entry.path()).value_or(""));
    fs::remove_all(folder);
  }
  void damage_newest() {
    const auto all = checkpoints_in(random_() % 4 == 0 ? out_ / "best" : out_);
    if (all.empty()) return;
    const char* names[] = {"state.json", "model.safetensors", "optimizer.safetensors"};
    fs::path file = all.front().path / names[random_() % 3];
    if (random_() % 8 == 0)
      for (const auto& entry : fs::directory_iterator(out_))
        if (is_frozen_part(entry.path())) file = entry.path();
    if (!fs::exists(file)) return;
    if (random_() % 3 == 0) {
      fs::remove(file);
    } else if (random_() % 2 == 0) {
      fs::resize_file(file, fs::file_size(file) / 2);
    } else {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(random_() % fs::file_size(file)));
      bytes.put('\x01');
    }
  }

  // ---- The user's own

  void add_files_of_the_users() {
    for (const char* name : {"notes.txt", "adapter/adapter_config.json", "predictions.csv",
                             "checkpoint-500/model.bin", "earlier/notes.txt"})
      add(out_ / name);
    for (const char* folder : {"model", "best"})
      if (fs::exists(out_ / folder)) add(out_ / folder / "notes.txt");
    for (const CheckpointFolder& one : checkpoints_in(out_)) add(one.path / "why.txt");
  }
  void add(const fs::path& file) {
    fs::create_directories(file.parent_path());
    const std::string content = "mine " + std::to_string(users_.size());
    std::ofstream(file) << content;
    users_[content] = file;
  }

  // ---- What must hold

  void check(const Command& command, const Contents& before, const Outcome& outcome) {
    ++processes_;
    const Contents after = contents_of(out_);
    const int newest = before.checkpoints.newest_sound;
    const bool goes_on = command.resumes && newest >= 0;
    EXPECT_TRUE(std::includes(after.records.begin(), after.records.end(), before.records.begin(),
                              before.records.end()))
        << "lines of metrics are gone\n"
        << outcome.err;
    EXPECT_GE(after.results, before.results) << outcome.err;
    if (goes_on) {
      EXPECT_GE(after.checkpoints.newest_sound, newest) << outcome.err;
      EXPECT_LE(after.best, before.best) << "the best one made room for a worse one";
    } else {
      EXPECT_TRUE(std::includes(after.states.begin(), after.states.end(), before.states.begin(),
                                before.states.end()))
          << "a sound checkpoint of an earlier run is gone\n"
          << outcome.err;
    }
    for (const auto& [content, file] : users_) expect_there(content, file);
    ended_ += outcome.exit_code == 0 ? 1 : 0;
    if (outcome.exit_code == 0) expect_complete(outcome, goes_on ? Json(newest) : Json());
  }

  // In its place, or with the run's own folder that it lies in.
  void expect_there(const std::string& content, const fs::path& file) const {
    if (read_file(file) == content) return;
    const fs::path inside = file.lexically_relative(out_);
    EXPECT_NE(std::distance(inside.begin(), inside.end()), 1) << inside << " was moved or changed";
    for (const auto& entry : fs::recursive_directory_iterator(out_))
      if (entry.is_regular_file() && read_file(entry.path()) == content) return;
    ADD_FAILURE() << inside << " of the user's is gone";
  }

  void expect_complete(const Outcome& outcome, const Json& resumed_from) const {
    EXPECT_EQ(outcome.json().at("resumed_from"), resumed_from) << outcome.err;
    EXPECT_EQ(weights_of(outcome), expected_) << outcome.err;
    std::vector<int> steps;
    for (const Json& line : world_.metrics("storm", "loss"))
      steps.push_back(line.at("step").get<int>());
    std::vector<int> each(kSteps);
    std::iota(each.begin(), each.end(), 1);
    EXPECT_EQ(steps, each) << "each step once";
  }

  [[nodiscard]] std::string metrics() const {
    return read_file(out_ / "metrics.jsonl").value_or("");
  }

  const TrainingWorld& world_;
  Arguments settings_;
  std::string expected_, told_;
  std::mt19937 random_;
  fs::path out_;
  std::map<std::string, fs::path> users_;
  int processes_ = 0, ended_ = 0;
};

std::uint32_t number(const char* variable, std::uint32_t otherwise) {
  return static_cast<std::uint32_t>(
      to_integer(environment(variable).value_or("")).value_or(otherwise));
}

void run_storms(const std::string& model) {
  const TrainingWorld world;
  const Arguments settings = {"model=" + model,
                              "model.config=" + world.gpt(),
                              "dataset=tokens",
                              "seq=16",
                              "data_dir=" + world.tokens(),
                              "batch_size=8",
                              "lr=3e-3",
                              "steps=" + std::to_string(kSteps),
                              "save_every=3",
                              "eval_every=8",
                              "num_workers=0",
                              "device=cpu"};
  const std::uint32_t runs = number("HEADROOM_STORM_RUNS", 1),
                      first = number("HEADROOM_STORM_SEED", 1);
  const std::string expected =
      weights_of(world.train(settings + Arguments{"out=" + world.path("undisturbed"), "--json"}));
  int processes = 0, ended = 0;
  for (std::uint32_t seed = first; seed < first + runs && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("HEADROOM_STORM_SEED=" + std::to_string(seed));
    Storm storm(world, settings, expected, seed);
    storm.run();
    processes += storm.processes();
    ended += storm.ended();
  }
  std::printf("%u runs of 12 events: %d trainings, of which %d reached their end\n", runs,
              processes, ended);
}

TEST(FolderStorm, LosesNothingInTwelveEvents) {
  run_storms("full");
}

TEST(FolderStorm, LosesNothingOfAdaptersAndTheFrozenPart) {
  run_storms("lora");
}

}  // namespace
}  // namespace headroom::testing
