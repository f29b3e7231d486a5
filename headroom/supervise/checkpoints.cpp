#include "headroom/supervise/checkpoints.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "headroom/base/error.h"
#include "headroom/edit/shell_words.h"

namespace headroom::supervise {
namespace {

// File times advance in ticks of up to 10 ms.
constexpr std::chrono::milliseconds kTick{10};

std::vector<std::filesystem::path> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::filesystem::path> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT | GLOB_TILDE | GLOB_BRACE, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

bool is_complete(std::filesystem::path path) {
  if (!path.has_filename()) path = path.parent_path();  // "out/ckpt-1/"
  const std::string name = path.filename().string();
  constexpr std::string_view kEnds[] = {".tmp", ".part", ".incomplete", "~"};
  return std::none_of(std::begin(kEnds), std::end(kEnds),
                      [&](std::string_view end) { return name.ends_with(end); });
}

// The time of a regular file that is not empty.
std::optional<WallTime> file_time(const std::filesystem::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) return {};
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(facts.st_mtim.tv_sec) +
      std::chrono::nanoseconds(facts.st_mtim.tv_nsec)));
}

std::optional<WallTime> time_of(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::is_directory(path, failure)) return file_time(path);
  std::optional<WallTime> newest;
  const auto options = std::filesystem::directory_options::skip_permission_denied;
  std::filesystem::recursive_directory_iterator entry(path, options, failure), end;
  for (; !failure && entry != end; entry.increment(failure))
    newest = std::max(newest, file_time(entry->path()));
  return newest;
}

// Digits compare as numbers.
bool comes_before(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view text) {
    const auto end = std::min(text.find_first_not_of("0123456789"), text.size());
    return text.substr(0, end);
  };
  const auto without_zeros = [](std::string_view number) {
    return number.substr(std::min(number.find_first_not_of('0'), number.size()));
  };
  while (!a.empty() && !b.empty()) {
    const std::string_view in_a = digits(a), in_b = digits(b);
    if (in_a.empty() || in_b.empty()) {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1), b.remove_prefix(1);
      continue;
    }
    const auto x = without_zeros(in_a), y = without_zeros(in_b);
    if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    a.remove_prefix(in_a.size()), b.remove_prefix(in_b.size());
  }
  return a.size() < b.size();
}

}  // namespace

std::optional<std::filesystem::path> newest_checkpoint(const std::string& pattern, WallTime since) {
  std::optional<std::filesystem::path> best;
  WallTime best_time = since - kTick;
  for (const std::filesystem::path& path : matches(pattern)) {
    const auto time = is_complete(path) ? time_of(path) : std::nullopt;
    if (!time || *time < best_time) continue;
    const bool later = !best || *time > best_time || comes_before(best->native(), path.native());
    if (later) best = path, best_time = *time;
  }
  return best;
}

std::vector<std::string> resume_arguments(const std::string& arguments,
                                          const std::filesystem::path& checkpoint) {
  std::vector<std::string> words = edit::split_words(arguments);
  bool named = false;
  for (std::string& word : words) {
    for (std::size_t at = word.find("{}"); at != std::string::npos;
         at = word.find("{}", at + checkpoint.native().size())) {
      word.replace(at, 2, checkpoint.native());
      named = true;
    }
  }
  if (!named)
    throw UsageError(expectation("--resume-arg", "{} where the checkpoint's path belongs",
                                 arguments, "\"--resume {}\""));
  return words;
}

}  // namespace headroom::supervise
