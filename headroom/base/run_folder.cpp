#include "headroom/base/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/base/lock_holder.h"
#include "headroom/base/text.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kList = "headroom-run.json";
constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kHalf = ".unfinished";
constexpr const char* kEarlier = "earlier-";
constexpr const char* kFrozen = "frozen-";
constexpr const char* kFrozenEnd = ".safetensors";

// ---- The files of a run ----

struct List {
  std::vector<std::string> files;
  std::string moving_to;  // "earlier-1" while set_aside() moves
};

bool is_record(const fs::path& file) {
  const std::string text = read_file(file).value_or("");
  const Json line = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  return line.is_object() && line.contains("step") &&
         (line.contains("attempts") || line.contains("val_rows"));
}

bool has_sound_looking(const std::vector<CheckpointFolder>& checkpoints) {
  return std::any_of(checkpoints.begin(), checkpoints.end(), [](const CheckpointFolder& one) {
    return fs::exists(one.path / "state.json");
  });
}

// A run of a version that made no list.
List list_of_older_run(const fs::path& folder) {
  List list;
  if (!is_record(folder / "metrics.jsonl") && !has_sound_looking(checkpoints_in(folder)) &&
      !has_sound_looking(checkpoints_in(folder / "best")))
    return list;
  for (const char* name :
       {"config.yaml", "metrics.jsonl", "plan_schedule.jsonl", "best", "model", "adapter"})
    if (fs::exists(folder / name)) list.files.emplace_back(name);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("events.out.tfevents"))
      list.files.push_back(name);
  return list;
}

List list_of(const fs::path& folder) {
  const auto text = read_file(folder / kList);
  if (!text) return list_of_older_run(folder);
  try {
    const Json document = Json::parse(*text);
    return {document.at("files").get<std::vector<std::string>>(), document.value("moving_to", "")};
  } catch (const std::exception&) {  // damaged: go by the records of its runs
    return list_of_older_run(folder);
  }
}

void write(const fs::path& folder, const List& list) {
  Json document{{"schema", 1}, {"files", list.files}};
  if (!list.moving_to.empty()) document["moving_to"] = list.moving_to;
  write_file_atomically(folder / kList, document.dump(1) + "\n");
}

// Digits behind "checkpoint-", eight or more: other programs write checkpoint-500.
std::optional<std::int64_t> step_in(const std::string& name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string digits = name.substr(std::string(kPrefix).size());
  const bool is_ours =
      digits.size() >= 8 && digits.find_first_not_of("0123456789") == std::string::npos;
  return is_ours ? to_integer(digits) : std::nullopt;
}

// Also half of one, and one that was found unsound.
bool is_checkpoint(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (!step_in(name.substr(0, dot))) return false;
  return dot == std::string::npos || name.substr(dot) == kHalf ||
         name.substr(dot).starts_with(".refused");
}

// All that runs have made in the folder and is there.
std::vector<fs::path> contents_of(const fs::path& folder) {
  std::vector<fs::path> all;
  for (const std::string& name : list_of(folder).files)
    if (fs::exists(folder / name)) all.push_back(folder / name);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const fs::path& path = entry.path(); is_checkpoint(path.filename().string()) ||
                                             is_frozen_part(path) ||
                                             path.filename() == kHalfFrozenPart)
      all.push_back(path);
  return all;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_foreign(const List& list, const fs::path& folder, const std::string& name) {
  return fs::exists(fs::symlink_status(folder / name)) && !contains(list.files, name);
}

[[noreturn]] void refuse_foreign(const fs::path& path) {
  throw WriteError("out", path.string() +
                              " is there and no training of Headroom wrote it; try "
                              "another folder, out=..., or move it away");
}

// ---- The lock ----

Descriptor locked(const fs::path& folder, int how) {
  Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!open.is_open()) throw WriteError(write_failure(folder, errno));
  if (::flock(open.get(), how | LOCK_NB) != 0)
    throw BusyError("out", "another run writes in " + folder.string() + ", " + lock_holder(folder) +
                               "; try another folder, out=..., or wait for its end");
  return open;
}

// ---- Earlier runs ----

std::string next_earlier(const fs::path& folder) {
  int number = 1;
  while (fs::exists(folder / (kEarlier + std::to_string(number)))) ++number;
  return kEarlier + std::to_string(number);
}

SetAside facts_of(const fs::path& folder, const fs::path& moved) {
  SetAside facts{.folder = moved};
  std::error_code error;
  while (fs::exists(folder / (kEarlier + std::to_string(facts.earlier + 1)))) ++facts.earlier;
  for (int i = 1; i <= facts.earlier; ++i)
    for (const auto& entry :
         fs::recursive_directory_iterator(folder / (kEarlier + std::to_string(i)),
                                          fs::directory_options::skip_permission_denied, error))
      if (entry.is_regular_file(error))
        facts.bytes += Bytes{static_cast<std::int64_t>(entry.file_size(error))};
  return facts;
}

}  // namespace

std::string to_string(const SetAside& moved) {
  const std::string runs =
      moved.earlier == 1 ? "" : std::to_string(moved.earlier) + " earlier runs, ";
  return "an earlier run is now in " + moved.folder.string() + " (" + runs +
         to_string(moved.bytes) + "; remove what you do not need)";
}

RunFolder::RunFolder(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw WriteError(write_failure(folder_, error.value()));
  open_ = locked(folder_, LOCK_EX);
  if (!list_of(folder_).moving_to.empty()) finish_set_aside();
}

bool RunFolder::has_a_run() const {
  return !contents_of(folder_).empty();
}

std::optional<SetAside> RunFolder::set_aside() {
  List list = list_of(folder_);
  if (contents_of(folder_).empty()) {
    std::error_code error;
    fs::remove(folder_ / kList, error);  // of a run whose files are gone
    return {};
  }
  list.moving_to = next_earlier(folder_);
  const fs::path moved = folder_ / list.moving_to;
  write(folder_, list);
  finish_set_aside();
  return facts_of(folder_, moved);
}

// The list moves last: until then it names the files that are left to move, and their place.
void RunFolder::finish_set_aside() {
  const fs::path to = folder_ / list_of(folder_).moving_to;
  std::error_code error;
  fs::create_directory(to, error);
  for (const fs::path& path : contents_of(folder_))
    if (!error) fs::rename(path, to / path.filename(), error);
  if (!error) fs::rename(folder_ / kList, to / kList, error);
  if (error) throw WriteError(write_failure(to, error.value()));
}

void RunFolder::claim(const std::string& name) {
  if (is_foreign(list_of(folder_), folder_, name)) refuse_foreign(folder_ / name);
  made(name);
}

void RunFolder::made(const std::string& name) {
  List list = list_of(folder_);
  const bool is_listed = contains(list.files, name);
  if (is_listed && fs::exists(folder_ / kList)) return;
  if (!is_listed) list.files.push_back(name);
  write(folder_, list);
}

std::vector<CheckpointFolder> checkpoints_in(const fs::path& folder) {
  std::vector<CheckpointFolder> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    const auto step = step_in(path.filename().string());
    // Without both files it is the rest of a removed one, kept for a file of the user's.
    if (step && (fs::exists(path / "state.json") || fs::exists(path / "model.safetensors")))
      all.push_back({path, *step});
  }
  std::sort(all.begin(), all.end(),
            [](const auto& one, const auto& other) { return one.step > other.step; });
  return all;
}

std::string frozen_part_name(const std::string& hash) {
  return kFrozen + hash + kFrozenEnd;
}

bool is_frozen_part(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kFrozen) || !name.ends_with(kFrozenEnd)) return false;
  const std::size_t begin = std::string_view(kFrozen).size();
  const std::string hash =
      name.substr(begin, name.size() - begin - std::string_view(kFrozenEnd).size());
  return hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_half_written_checkpoint(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return is_checkpoint(name) && name.ends_with(kHalf);
}

bool is_run_folder(const fs::path& folder) {
  return !contents_of(folder).empty();
}

bool is_of_a_run(const fs::path& folder, const std::string& name) {
  return fs::exists(folder / name) && contains(list_of(folder).files, name);
}

void check_run_folder(const fs::path& folder, const std::vector<std::string>& names) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  static_cast<void>(locked(folder, LOCK_SH));
  const List list = list_of(folder);
  for (const std::string& name : names)
    if (is_foreign(list, folder, name)) refuse_foreign(folder / name);
}

}  // namespace headroom
