#include "headroom/sim/shared_box.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"

namespace headroom::sim {
namespace {

constexpr const char *kJoin = "SharedBox", *kTurn = "SharedBox::Turn",
                     *kPublish = "SharedBox::publish";

[[noreturn]] void fail(const char* function, const std::filesystem::path& path, int error) {
  throw WriteError(function, "cannot write " + path.string() + ": " + std::strerror(error));
}

int open_lock(const std::filesystem::path& box) {
  std::error_code ignored;  // if this fails, opening reports why
  std::filesystem::create_directories(box.parent_path(), ignored);
  const std::filesystem::path path = std::filesystem::path(box).replace_extension(".lock");
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) fail(kJoin, path, errno);
  return file;
}

void lock(int file, const std::filesystem::path& path) {
  while (::flock(file, LOCK_EX) != 0)
    if (errno != EINTR) fail(kTurn, path, errno);
}

std::string text_of(const gpu::SimulatedBox& box, const std::vector<gpu::BoxShare>& shares) {
  Json file{{"schema", 1}, {"cards", Json::array()}, {"shares", Json::array()}};
  for (const gpu::SimulatedCard& card : box.cards)
    file["cards"].push_back({{"total_bytes", card.total.count}});
  for (const gpu::BoxShare& share : shares)
    file["shares"].push_back({{"pid", share.process.pid},
                              {"start_ticks", share.process.start_ticks},
                              {"card", share.card},
                              {"used_bytes", share.used.count}});
  return to_line(file) + "\n";
}

// Renames the file into place in one step, without fsync: a crash of the machine also ends all
// processes whose shares it holds.
void replace(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path fresh = path.string() + ".new";  // one writer at a time
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail(kPublish, fresh, errno);
  try {
    write_all(file, text, fresh);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
  if (::rename(fresh.c_str(), path.c_str()) != 0) fail(kPublish, path, errno);
}

}  // namespace

SharedBox::SharedBox(gpu::SimulatedBox box)
    : box_(std::move(box)),
      path_(gpu::box_path(box_)),
      self_(this_process()),
      lock_file_(open_lock(path_)) {
  try {
    const Turn turn(*this);
    read();
  } catch (...) {
    ::close(lock_file_);
    throw;
  }
}

SharedBox::~SharedBox() {
  if (is_ours()) {
    try {
      const Turn turn(*this);
      const bool held = ours_ != decltype(ours_){};
      ours_ = {};
      if (held) write();
    } catch (const Error&) {  // the others ignore the shares of a process that has ended
    }
  }
  forget_neighbours();
  ::close(lock_file_);
}

SharedBox::Turn::Turn(SharedBox& box) : box_(box), lock_(box.mutex_) {
  if (!box_.is_ours()) return;
  lock(box_.lock_file_, box_.path_);
  try {
    box_.look();
  } catch (...) {
    ::flock(box_.lock_file_, LOCK_UN);
    throw;
  }
}

SharedBox::Turn::~Turn() {
  if (box_.is_ours()) ::flock(box_.lock_file_, LOCK_UN);
}

void SharedBox::publish(int card, Bytes used) {
  Bytes& ours = ours_[static_cast<std::size_t>(card)];
  const Bytes before = std::exchange(ours, used);
  if (!is_ours()) return;
  try {
    write();
  } catch (...) {
    ours = before;
    throw;
  }
}

// False in a forked child, whose lock would be its parent's.
bool SharedBox::is_ours() const {
  return ::getpid() == self_.pid;
}

SharedBox::Version SharedBox::version() const {
  Version now;
  struct stat file {};
  if (::stat(path_.c_str(), &file) == 0) {
    now.file = file.st_ino;
    now.changed_ns = file.st_ctim.tv_sec * 1'000'000'000LL + file.st_ctim.tv_nsec;
  }
  if (::pread(lock_file_, &now.writes, sizeof now.writes, 0) != sizeof now.writes) now.writes = 0;
  return now;
}

void SharedBox::look() {
  if (version() != seen_ || neighbour_ended()) read();
}

void SharedBox::read() {
  seen_ = version();
  shares_ = gpu::read_shares(box_);
  std::erase_if(shares_, [&](const gpu::BoxShare& share) {
    return share.process == self_ || share.card < 0 ||
           static_cast<std::size_t>(share.card) >= box_.cards.size() ||
           !processes_.alive(share.process);
  });
  others_ = {};
  for (const gpu::BoxShare& share : shares_)
    others_[static_cast<std::size_t>(share.card)] += share.used;
  watch_neighbours();
}

void SharedBox::write() {
  std::vector<gpu::BoxShare> all = shares_;
  for (std::size_t card = 0; card < ours_.size(); ++card)
    if (ours_[card].count > 0)
      all.push_back({.process = self_, .card = static_cast<int>(card), .used = ours_[card]});
  // Counted first: a process that ends in between leaves a file that is read once too often.
  const std::uint64_t writes = version().writes + 1;
  if (::pwrite(lock_file_, &writes, sizeof writes, 0) != sizeof writes)
    fail(kPublish, path_, errno);
  replace(path_, text_of(box_, all));
  seen_ = version();
}

// ---- Processes that have ended ----

bool SharedBox::neighbour_ended() {
  if (!all_watched_)
    return !std::all_of(shares_.begin(), shares_.end(), [&](const gpu::BoxShare& share) {
      return processes_.alive(share.process);
    });
  return !neighbours_.empty() && ::poll(neighbours_.data(), neighbours_.size(), 0) > 0;
}

void SharedBox::watch_neighbours() {
  forget_neighbours();
  std::set<pid_t> seen;
  for (const gpu::BoxShare& share : shares_) {
    if (!seen.insert(share.process.pid).second) continue;
    const long descriptor = ::syscall(SYS_pidfd_open, share.process.pid, 0);
    if (descriptor < 0)
      all_watched_ = false;  // an old system, or the process has just ended
    else
      neighbours_.push_back({.fd = static_cast<int>(descriptor), .events = POLLIN, .revents = 0});
  }
  // A process that ended before it was watched, and whose pid is reused, never reports its end.
  for (const gpu::BoxShare& share : shares_)
    if (!processes_.alive(share.process)) all_watched_ = false;
}

void SharedBox::forget_neighbours() {
  for (const pollfd& neighbour : neighbours_) ::close(neighbour.fd);
  neighbours_.clear();
  all_watched_ = true;
}

}  // namespace headroom::sim
