#include "headroom/edit/edited_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom::edit {
namespace {

using Path = std::filesystem::path;

Path kept_name(const Path& file) {
  return file.string() + ".headroom-before";
}

[[noreturn]] void fail(const Path& path, int error) {
  throw WriteError("edit", write_failure(path, error));
}

[[noreturn]] void refuse_busy(const Path& path) {
  throw BusyError(
      "edit", path.string() +
                  " is being changed by another headroom run; try again when it has ended, or give "
                  "each run a copy of its own");
}

// ---- The kept original. It has the modification time of the file as we wrote it: after a kill the
// next run sees from that whether another program wrote the file since. ----

void stamp(int kept, const Path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return;
  const timespec times[2] = {facts.st_atim, facts.st_mtim};
  ::futimens(kept, times);
}

bool has_stamp(int kept, const Path& file) {
  struct stat ours {
  }, now{};
  return ::fstat(kept, &ours) == 0 && ::stat(file.c_str(), &now) == 0 &&
         ours.st_mtim.tv_sec == now.st_mtim.tv_sec && ours.st_mtim.tv_nsec == now.st_mtim.tv_nsec;
}

// Complete and locked before it gets its name, so no other run sees half of it.
Descriptor keep(const Path& file, const std::string& original) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) fail(file, errno);
  std::string fresh = kept_name(file).string() + "-XXXXXX";
  Descriptor kept(::mkostemp(fresh.data(), O_CLOEXEC));
  if (kept.get() < 0) fail(kept_name(file), errno);
  try {
    write_all(kept.get(), original, kept_name(file));
    if (::fchmod(kept.get(), facts.st_mode & 07777) != 0 || ::fsync(kept.get()) != 0 ||
        ::flock(kept.get(), LOCK_EX | LOCK_NB) != 0)
      fail(kept_name(file), errno);
    if (::link(fresh.c_str(), kept_name(file).c_str()) != 0) {
      if (errno == EEXIST) refuse_busy(file);
      fail(kept_name(file), errno);
    }
  } catch (...) {
    ::unlink(fresh.c_str());
    throw;
  }
  ::unlink(fresh.c_str());
  return kept;
}

// Keeps the original beside a file that another program changed.
std::string leave(const Path& file, const std::string& what) {
  const Path original = file.string() + ".headroom-original";
  std::error_code failure;
  std::filesystem::rename(kept_name(file), original, failure);
  return file.string() + " " + what + " and stays as it is; its earlier content is in " +
         (failure ? kept_name(file) : original).string();
}

// Nothing, or the reason why it failed.
std::optional<std::string> give_back(const Path& file, const std::string& original) {
  try {
    if (read_file(file) != original) write_file_atomically(file, original);
  } catch (const Error& error) {
    return file.string() + " could not be restored: " + error.sentence() +
           "; its earlier content is in " + kept_name(file).string();
  }
  ::unlink(kept_name(file).c_str());
  return {};
}

std::optional<std::string> restore_leftover(const Path& file) {
  const Descriptor kept(::open(kept_name(file).c_str(), O_RDONLY | O_CLOEXEC));
  if (kept.get() < 0) return {};
  if (::flock(kept.get(), LOCK_EX | LOCK_NB) != 0) refuse_busy(file);
  const auto original = read_file(kept_name(file));
  if (!original) return {};  // its run has ended at this moment
  const auto now = read_file(file);
  if (now != original && !has_stamp(kept.get(), file))
    return leave(file, "was changed after an earlier run was killed before it could restore it");
  if (auto failed = give_back(file, *original)) return failed;
  if (now == original) return {};
  return file.string() + " was restored: an earlier run was killed before it could do so";
}

}  // namespace

std::vector<std::string> restore_leftovers(const std::vector<Path>& files) {
  std::vector<std::string> sentences;
  for (const Path& file : files) {
    if (auto sentence = restore_leftover(file)) sentences.push_back(*std::move(sentence));
  }
  return sentences;
}

EditedFiles::~EditedFiles() {
  try {
    put_back();
  } catch (...) {  // out of memory: the next run restores them
  }
}

EditedFiles::File& EditedFiles::begin(const Path& path) {
  if (const auto known = files_.find(path); known != files_.end()) return known->second;
  const std::string original = read_input(path);
  return files_[path] = {.original = original, .ours = original, .lock = keep(path, original)};
}

void EditedFiles::put(const std::map<Path, std::string>& files) {
  for (const auto& [path, content] : files) begin(path);
  for (auto& [path, file] : files_) {
    const auto named = files.find(path);
    const std::string& content = named == files.end() ? file.original : named->second;
    if (read_file(path) != file.ours)
      throw WriteError(
          "edit", path.string() +
                      " was changed by another program while the command ran; it is left as it is");
    if (content == file.ours) continue;
    write_file_atomically(path, content);
    file.ours = content;
    stamp(file.lock.get(), path);
  }
}

std::vector<std::string> EditedFiles::put_back() {
  std::vector<std::string> sentences;
  for (auto& [path, file] : std::exchange(files_, {})) {
    const auto now = read_file(path);
    const bool untouched = now == file.ours || now == file.original;
    if (!untouched)
      sentences.push_back(leave(path, "was changed by another program while the command ran"));
    else if (auto failed = give_back(path, file.original))
      sentences.push_back(*std::move(failed));
  }
  return sentences;
}

}  // namespace headroom::edit
