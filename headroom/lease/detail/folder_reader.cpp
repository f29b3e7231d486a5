#include "headroom/lease/detail/folder_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/process.h"
#include "headroom/base/text.h"
#include "headroom/lease/detail/documents.h"
#include "headroom/lease/detail/locked_file.h"

namespace headroom::lease::detail {
namespace {

namespace fs = std::filesystem;
using namespace headroom::literals;

constexpr std::size_t kMostOfALease = 64 * 1024, kMostOfGrants = 8 * 1024 * 1024;

// For printing: any user may give a file any name.
std::string shown(const fs::path& path) {
  return without_controls(path.string());
}

[[noreturn]] void cannot_look(const fs::path& path, int error) {
  throw BusyError("lease",
                  "cannot read " + shown(path) + ": " + std::strerror(error) +
                      "; reservations are unknown, so no lease is given" +
                      (error == EACCES ? "; try chmod 1777 as the folder's owner or root" : ""));
}

// "a.lease of bob".
std::string with_owner(const fs::path& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return shown(path);
  return shown(path) + " of " + user_name(facts.st_uid);
}

// A file of the folder, open for reading.
class Entry {
 public:
  // Not open afterwards if the file is gone, of another kind, or unreadable for this user.
  explicit Entry(fs::path path) : path_(std::move(path)) {
    // A link must not be followed, and a pipe must not block.
    file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file_.is_open()) {
      const bool not_ours = errno == ENOENT || errno == ELOOP || errno == ENXIO || errno == ENODEV;
      refused_ = errno == EACCES || errno == EPERM;
      if (!not_ours && !refused_) cannot_look(path_, errno);
    } else if (::fstat(file_.get(), &facts_) != 0) {
      cannot_look(path_, errno);
    }
  }

  [[nodiscard]] bool is_file() const { return file_.is_open() && S_ISREG(facts_.st_mode); }
  [[nodiscard]] bool is_refused() const { return refused_; }
  [[nodiscard]] bool locked() const { return is_locked(file_.get()); }
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] const struct stat& facts() const { return facts_; }
  // The name without its kind; no two in a folder have the same.
  [[nodiscard]] std::string id() const { return shown(path_.stem()); }

  // The kernel's creation time, which no user can set. std::nullopt if the file system has none, or
  // if the clock was set back since.
  [[nodiscard]] std::optional<WallTime> born() const {
    struct statx facts {};
    if (::statx(file_.get(), "", AT_EMPTY_PATH, STATX_BTIME, &facts) != 0) return {};
    if ((facts.stx_mask & STATX_BTIME) == 0) return {};
    const auto since_1970 = std::chrono::seconds(facts.stx_btime.tv_sec) +
                            std::chrono::nanoseconds(facts.stx_btime.tv_nsec);
    const WallTime born(std::chrono::duration_cast<WallTime::duration>(since_1970));
    return born <= std::chrono::system_clock::now() ? std::optional(born) : std::nullopt;
  }

  // About `most` bytes at the most.
  [[nodiscard]] std::string text(std::size_t most) const {
    std::string content;
    std::array<char, 4096> buffer;  // NOLINT: filled by read before it is looked at
    while (content.size() < most) {
      const ssize_t got = ::read(file_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) cannot_look(path_, errno);
      if (got == 0) break;
      content.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return content;
  }

 private:
  fs::path path_;
  Descriptor file_;
  bool refused_ = false;
  struct stat facts_ {};
};

std::int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

// A time in the future is invalid; but the file may have been touched since the look began.
bool looked_lately(const struct stat& facts, std::int64_t began_ns) {
  const Seconds ago{static_cast<double>(began_ns - nanoseconds(facts.st_mtim)) * 1e-9};
  return ago < kLooksWithin && ago > Seconds(-1);
}

void add_dead(const Entry& entry, Contents& contents) {
  contents.dead.push_back({.path = entry.path(),
                           .uid = entry.facts().st_uid,
                           .size = Bytes{static_cast<std::int64_t>(entry.facts().st_size)}});
}

void add_lease(const Entry& entry, Contents& contents) {
  if (!entry.locked()) return add_dead(entry, contents);
  auto claim = read_claim(entry.text(kMostOfALease));
  if (!claim) {
    contents.unreadable_leases.push_back(entry.path().string());
    contents.warnings.push_back(with_owner(entry.path()) +
                                " is a held lease that cannot be read: no lease is given while it "
                                "exists; try fuser on it to see its holder, or remove it as its "
                                "owner or root");
    return;
  }
  claim->id = entry.id();
  claim->uid = entry.facts().st_uid;
  claim->file = {entry.facts().st_dev, entry.facts().st_ino};
  contents.highest_ticket = std::max(contents.highest_ticket, claim->ticket);
  contents.leases.push_back(*std::move(claim));
}

void add_waiter(const Entry& entry, Contents& contents) {
  if (!entry.locked()) return add_dead(entry, contents);
  auto waiter = read_waiter(entry.text(kMostOfALease));
  if (!waiter) {
    contents.warnings.push_back(with_owner(entry.path()) +
                                " is not a valid waiter's file; ignored");
    return;
  }
  waiter->id = entry.id();
  waiter->uid = entry.facts().st_uid;
  waiter->born = entry.born();
  waiter->looking = looked_lately(entry.facts(), contents.at_ns);
  contents.highest_ticket = std::max(contents.highest_ticket, waiter->ticket);
  contents.waiting.push_back(*std::move(waiter));
}

// An unreadable file must not block other users, so it is ignored.
void add_refused(const Entry& entry, Contents& contents) {
  contents.warnings.push_back(with_owner(entry.path()) +
                              " cannot be read by other users and is ignored; try chmod 644 on it, "
                              "or remove it, as its owner or root");
}

// A time in the future is from before a restart of the machine, or invalid: it would count for
// ever.
void add_grants(const Entry& entry, Contents& contents) {
  std::vector<Grant> grants = read_grants(entry.text(kMostOfGrants));
  const std::int64_t now_ns = monotonic_ns();  // after the last of them was written
  std::erase_if(grants, [&](const Grant& grant) { return grant.at_ns > now_ns; });
  for (Grant& grant : grants) {
    contents.highest_ticket = std::max(contents.highest_ticket, grant.ticket);
    contents.grants.push_back(std::move(grant));
  }
}

void add(const fs::path& path, Contents& contents) {
  const auto kind = path.extension();
  if (kind != ".lease" && kind != ".wait" && kind != ".grants" && kind != ".tmp") return;
  const Entry entry(path);
  if (entry.is_refused() && kind != ".tmp") return add_refused(entry, contents);
  if (!entry.is_file()) return;
  if (kind == ".lease") add_lease(entry, contents);
  if (kind == ".wait") add_waiter(entry, contents);
  if (kind == ".grants") add_grants(entry, contents);
  if (kind == ".tmp" && !entry.locked()) add_dead(entry, contents);
}

// ---- Grants ----

// Not open, with EACCES, if another user has taken this name.
Descriptor open_grants(const fs::path& path) {
  Descriptor file(::open(path.c_str(),
                         O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  if (!file.is_open()) return file;
  struct stat facts {};
  if (::fstat(file.get(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid()) {
    (void)::fchmod(file.get(), 0644);
    return file;
  }
  file.close();
  errno = EACCES;
  return file;
}

// Grants that a waiter with a smaller ticket still counts, or that a look may have missed. `now` is
// from before the newest grant.
bool needed(const Grant& grant, const Contents& now) {
  const Seconds ago{static_cast<double>(monotonic_ns() - grant.at_ns) * 1e-9};
  if (ago < Seconds(0)) return false;  // from before a restart of the machine
  return ago < kLookFreshFor + Seconds(0.5) ||
         std::any_of(now.waiting.begin(), now.waiting.end(),
                     [&](const Waiter& waiter) { return waiter.ticket < grant.ticket; });
}

void prune(const fs::path& path, const std::string& content, const Contents& now) {
  const auto grants = read_grants(content);
  std::string kept;
  for (const Grant& grant : grants)
    if (needed(grant, now)) kept += text_of(grant);
  if (kept.size() > content.size() / 2) return;  // not worth it
  const fs::path fresh = path.string() + ".new";
  (void)::unlink(fresh.c_str());  // of a writer that was killed here; we have the turn
  const Descriptor file(make_locked_file(fresh.parent_path(), fresh.filename().string(), kept));
  if (::rename(fresh.c_str(), path.c_str()) != 0) throw_write_error(path, errno);
}

}  // namespace

Contents read_folder(const fs::path& folder) {
  Contents contents;
  contents.at_ns = monotonic_ns();
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  if (!open) cannot_look(folder, errno);
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) cannot_look(folder, errno);
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') add(folder / entry->d_name, contents);
  }
  contents.waiting = in_order(std::move(contents.waiting));
  std::sort(contents.leases.begin(), contents.leases.end(),
            [](const Claim& a, const Claim& b) { return a.ticket < b.ticket; });
  return contents;
}

void append_grant(const fs::path& own, const fs::path& other, const Grant& grant,
                  const Contents& now) {
  constexpr std::size_t kLong = 16 * 1024;
  fs::path path = own;
  Descriptor file = open_grants(path);
  const bool taken = errno == EACCES || errno == EPERM || errno == ELOOP || errno == EISDIR;
  if (!file.is_open() && taken) file = open_grants(path = other);
  struct stat facts {};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0) throw_write_error(path, errno);
  // A writer that was killed may have left half a line.
  char last = '\n';
  if (facts.st_size > 0 && ::pread(file.get(), &last, 1, facts.st_size - 1) != 1)
    throw_write_error(path, errno);
  write_all(file.get(), (last == '\n' ? "" : "\n") + text_of(grant), path);
  if (static_cast<std::size_t>(facts.st_size) > kLong)
    prune(path, read_file(path).value_or(""), now);
}

}  // namespace headroom::lease::detail
