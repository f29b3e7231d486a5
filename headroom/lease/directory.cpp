#include "headroom/lease/directory.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/lock_holder.h"
#include "headroom/lease/detail/documents.h"
#include "headroom/lease/detail/file_system.h"
#include "headroom/lease/detail/folder_reader.h"
#include "headroom/lease/detail/locked_file.h"
#include "headroom/lease/detail/point.h"

namespace headroom::lease {
namespace {

namespace fs = std::filesystem;
using namespace headroom::literals;

// The folders on file systems that carry leases; if there are none, all, so that an error names the
// reason.
Directory::Paths suitable(Directory::Paths paths) {
  Directory::Paths local = paths;
  std::erase_if(local, [](const fs::path& path) { return !detail::is_local(path); });
  return local.empty() ? paths : local;
}

bool is_folder(const fs::path& path) {
  struct stat facts {};
  // Not a link, which its owner could redirect later.
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// True if it exists afterwards. Only the maker can set the mode, and chmod ignores the umask.
bool make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), 01777) == 0) (void)::chmod(path.c_str(), 01777);
  return is_folder(path);
}

std::string new_id() {
  std::random_device random;
  char text[9];
  std::snprintf(text, sizeof text, "%08x", random());
  return text;
}

FileNumber number_of(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return {};
  return {facts.st_dev, facts.st_ino};
}

// Fills in the owner, the time and a new identifier.
template <typename T>
void sign(T& entry, const Contents& now) {
  entry.id = new_id();
  if (entry.ticket == 0) entry.ticket = std::min(now.highest_ticket + 1, kMostTicket);
  entry.owner = this_process();
  entry.pid_namespace = this_pid_namespace();
  entry.uid = ::geteuid();
  if (entry.user.empty()) entry.user = std::to_string(entry.uid);
  entry.since = std::chrono::system_clock::now();
}

}  // namespace

std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// ---- The folder ----

Directory Directory::at(const fs::path& path) {
  std::error_code ignored;  // making the folder itself reports the reason
  fs::create_directories(path.parent_path(), ignored);
  if (!make_folder(path))
    throw WriteError(
        expectation("lease", "a folder for leases", path.string(),
                    "HEADROOM_LEASE_DIR: a folder that all users of the GPUs may write "
                    "(mode 1777)"));
  detail::require_local_file_system(path);
  return Directory(path);
}

Directory::Paths Directory::candidates() {
  if (const auto own = environment("HEADROOM_LEASE_DIR"); own && !own->empty()) return {*own};
  return {"/run/lock/headroom", "/dev/shm/headroom"};
}

Directory Directory::open(const Paths& paths) {
  const Paths local = suitable(paths);
  for (const fs::path& path : local)
    if (is_folder(path)) return at(path);
  for (const fs::path& path : local)
    if (make_folder(path)) return at(path);
  return at(local.back());
}

std::optional<Directory> Directory::existing(const Paths& paths) {
  for (const fs::path& path : suitable(paths)) {
    if (!is_folder(path)) continue;
    detail::require_local_file_system(path);
    return Directory(path);
  }
  return {};
}

std::vector<std::string> Directory::warnings() const {
  std::vector<std::string> found;
  struct stat facts {};
  if (::stat(path_.c_str(), &facts) != 0)
    return {"the folder of leases is gone: " + path_.string()};
  if ((facts.st_mode & 01777) != 01777)
    found.push_back(fmt::format("leases in {} are not shared by all users: its mode is not 1777",
                                path_.string()));
  struct stat root {};
  const bool container = !ProcessTable().in_first_pid_namespace();
  // A separate mount was put there on purpose.
  const bool mounted =
      ::stat(path_.parent_path().c_str(), &root) == 0 && root.st_dev != facts.st_dev;
  if (container && !mounted)
    found.push_back(
        fmt::format("leases in {0} may be visible only in this container; start it with -v "
                    "/run/lock/headroom:{0}",
                    path_.string()));
  return found;
}

// ---- Reading ----

Contents Directory::contents() const {
  return detail::read_folder(path_);
}

Contents Directory::Turn::contents() const {
  return detail::read_folder(folder_);
}

// ---- Turns ----

Directory::Turn Directory::take_turn(Seconds patience, const std::stop_token& cancel) const {
  Descriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) detail::throw_write_error(path_, errno);
  const auto begin = Clock::now();
  // Polls, because a wait in the kernel could not be cancelled and could not name the holder; at
  // random intervals, so that waiters do not run in step.
  std::minstd_rand random(std::random_device{}());
  while (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) detail::throw_write_error(path_, errno);
    if (Clock::now() - begin >= patience || cancel.stop_requested())
      throw BusyError(
          "lease",
          fmt::format(
              "the leases in {} are locked by {}; waited {}; try again, or check that process",
              path_.string(), lock_holder(path_), duration_text(Clock::now() - begin)));
    std::this_thread::sleep_for(std::chrono::microseconds(100 + random() % 900));
  }
  detail::pass(detail::Point::my_turn);
  return {path_, std::move(folder)};
}

Directory::Turn::~Turn() {
  // Closing alone would not end the turn: a process forked meanwhile has the descriptor, too.
  if (lock_.is_open()) ::flock(lock_.get(), LOCK_UN);
}

Lease Directory::Turn::make_lease(Claim claim, const Contents& now) const {
  sign(claim, now);
  const std::string name = claim.id + ".lease";
  const int file = detail::make_locked_file(folder_, name, detail::text_of(claim));
  ::fcntl(file, F_SETFD, 0);
  claim.file = number_of(file);
  Lease lease(std::move(claim), file, folder_ / name);
  detail::pass(detail::Point::lease_there);
  // The grant is noted after the lease exists: a look that began earlier and did not see the lease
  // finds the grant at the decision and counts it. A process that dies in between has not used
  // memory yet.
  const Claim& made = lease.claim();
  note({.ticket = made.ticket, .at_ns = monotonic_ns(), .id = made.id, .shares = made.shares}, now);
  detail::pass(detail::Point::lease_noted);
  return lease;
}

void Directory::Turn::change_lease(Lease& lease, std::vector<Share> shares) const {
  if (lease.ended_by())
    throw UsageError("lease", fmt::format("lease {} was ended", lease.claim().id));
  Claim claim = lease.claim();
  claim.shares = std::move(shares);
  const std::string name = claim.id + ".lease";
  const int file =
      detail::make_locked_file(folder_, name, detail::text_of(claim), /*may_replace=*/true);
  ::fcntl(file, F_SETFD, 0);
  claim.file = number_of(file);
  lease = Lease(std::move(claim), file, folder_ / name);
}

PlaceInQueue Directory::Turn::join_queue(Waiter waiter, const Contents& now) const {
  waiter.ticket = 0;
  sign(waiter, now);
  const std::string name = waiter.id + ".wait";
  const int file = detail::make_locked_file(folder_, name, detail::text_of(waiter));
  return {waiter, file, folder_ / name};
}

void Directory::Turn::end_lease(const Claim& lease) const {
  const fs::path path = folder_ / (lease.id + ".lease");
  if (::geteuid() != 0 && ::geteuid() != lease.uid)
    throw WriteError(
        "lease", fmt::format("lease {} is of {}, and only its owner or root may end it", lease.id,
                             user_name(lease.uid)));
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() && errno != ENOENT) detail::throw_write_error(path, errno);
  if (!file.is_open() || number_of(file.get()) != lease.file)
    throw UsageError("lease", fmt::format("lease {} has ended already", lease.id));
  // The name goes first: no reader may see a lease with an additional line.
  if (::unlink(path.c_str()) != 0) detail::throw_write_error(path, errno);
  const std::string line = std::string(detail::kEndedBy) + user_name(::geteuid()) + "\n";
  [[maybe_unused]] const ssize_t noted = ::write(file.get(), line.data(), line.size());
}

std::vector<DeadFile> Directory::Turn::remove_dead(const Contents& now) const {
  std::vector<DeadFile> removed;
  for (const DeadFile& file : now.dead)
    if (!detail::is_locked(file.path) && ::unlink(file.path.c_str()) == 0) removed.push_back(file);
  return removed;
}

// One file per user, which only that user can write.
void Directory::Turn::note(const Grant& grant, const Contents& now) const {
  const fs::path own = folder_ / (std::to_string(::geteuid()) + ".grants");
  // Another user may have taken that name.
  const fs::path other = folder_ / fmt::format("{}-{}.grants", ::geteuid(), grant.id);
  detail::append_grant(own, other, grant, now);
}

// ---- Places in the queue ----

PlaceInQueue::PlaceInQueue(const Waiter& waiter, int descriptor, fs::path file)
    : id_(waiter.id), ticket_(waiter.ticket), descriptor_(descriptor), file_(std::move(file)) {
  touch();
}

PlaceInQueue::~PlaceInQueue() {
  if (descriptor_.is_open()) ::unlink(file_.c_str());
}

PlaceInQueue& PlaceInQueue::operator=(PlaceInQueue&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(ticket_, other.ticket_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(file_, other.file_);
  return *this;
}

// The file gets the monotonic clock's time, so setting the wall clock makes no waiter look stopped.
void PlaceInQueue::touch() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const timespec times[2] = {now, now};
  (void)::futimens(descriptor_.get(), times);
}

}  // namespace headroom::lease
