// Watching and reading of a state file.
#include "state_file.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

namespace fake_nvml {
namespace {

constexpr std::int64_t kYoungNs = 50'000'000;

std::int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

StateFile::StateFile(std::string path) : path_(std::move(path)) {}

bool StateFile::refresh() {
  struct stat info {};
  if (path_.empty() || ::stat(path_.c_str(), &info) != 0) return false;
  const Stamp stamp{info.st_ino,
                    std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
                    info.st_size};
  if (stamp == stamp_ && !was_young_) return false;
  stamp_ = stamp;
  was_young_ = now_ns() - stamp.modified_ns < kYoungNs;
  return load();
}

bool StateFile::load() {
  std::ifstream file(path_, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    stamp_ = {};  // gone between stat and open: look again at the next call
    return false;
  }
  if (text == text_) return false;
  text_ = std::move(text);
  try {
    state_ = std::make_shared<const State>(parse_state(text_));
    return true;
  } catch (const IncompleteState&) {
    return false;
  } catch (const BadState& error) {
    std::fprintf(stderr, "[fake_nvml] %s: %s; the last good state stays in force\n", path_.c_str(),
                 error.what());
    return false;
  }
}

}  // namespace fake_nvml
