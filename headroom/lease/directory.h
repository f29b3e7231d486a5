// The shared folder of a machine's leases (docs/formats/lease.md).
//
// Every user may read it and make files in it, but not change or remove another user's (mode 1777).
// Reading needs no lock and no permission. A change needs a turn, and only one process at a time
// has one. A turn ends with its process; do nothing slow in it.
//
//   const Directory directory = Directory::open();
//   Directory::Turn turn = directory.take_turn();
//   const Contents now = turn.contents();
//   if (has_room(now)) Lease lease = turn.make_lease(claim, now);
//
// Threads: many may use a Directory at once; a Turn belongs to one thread.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "headroom/lease/lease.h"
#include "headroom/lease/queue.h"

namespace headroom::lease {

// The longest age of a look at the folder for a decision. Grants are kept longer, so no grant
// between two looks is missed.
inline constexpr Seconds kLookFreshFor{3.0};

// A file that no process holds any more.
struct DeadFile {
  std::filesystem::path path;
  uid_t uid = 0;
  Bytes size{0};
};

// The folder at one moment.
struct Contents {
  std::int64_t at_ns = 0;  // on the monotonic clock, when the look began
  std::vector<Claim> leases;
  Queue waiting;
  std::vector<Grant> grants;
  std::vector<DeadFile> dead;
  // Held leases whose file cannot be read: each may reserve all memory of any card.
  std::vector<std::string> unreadable_leases;
  std::vector<std::string> warnings;
  long long highest_ticket = 0;
};

// A place in the queue, as a file that lives as long as this object. It counts while it is touched
// regularly.
class PlaceInQueue {
 public:
  PlaceInQueue(const Waiter& waiter, int descriptor, std::filesystem::path file);
  ~PlaceInQueue();
  PlaceInQueue(PlaceInQueue&& other) noexcept = default;
  PlaceInQueue& operator=(
      PlaceInQueue&& other) noexcept;  // the place from before ends with `other`

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] long long ticket() const { return ticket_; }
  // Shows the others that it still waits.
  void touch() const;

 private:
  std::string id_;
  long long ticket_ = 0;
  Descriptor descriptor_;
  std::filesystem::path file_;
};

class Directory {
 public:
  using Paths = std::vector<std::filesystem::path>;
  // HEADROOM_LEASE_DIR, else /run/lock/headroom and /dev/shm/headroom.
  [[nodiscard]] static Paths candidates();
  // The first existing folder on a file system that carries leases, because leases in two folders
  // would not know of each other; else the first that can be made. Throws WriteError if none can be
  // made, UnavailableError if no file system is suitable (all on a network).
  [[nodiscard]] static Directory open(const Paths& paths = candidates());
  // The same without making one; std::nullopt if there is none, and thus no leases.
  [[nodiscard]] static std::optional<Directory> existing(const Paths& paths = candidates());
  // This folder, made if missing.
  [[nodiscard]] static Directory at(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Reasons why not every user of the cards may see leases here, one sentence each.
  [[nodiscard]] std::vector<std::string> warnings() const;

  // Reads the folder without waiting. Throws BusyError if it cannot read all of it.
  [[nodiscard]] Contents contents() const;

  class Turn {
   public:
    ~Turn();
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&&) = delete;

    [[nodiscard]] Contents contents() const;

    // Fills in the rest of `claim`: identifier, ticket (if 0), owner, user, time. `now` is this
    // turn's look. Throws WriteError and then changes nothing.
    [[nodiscard]] Lease make_lease(Claim claim, const Contents& now) const;
    [[nodiscard]] PlaceInQueue join_queue(Waiter waiter, const Contents& now) const;

    // Gives a lease of this process other shares; its identifier stays. Other holders of the former
    // descriptor keep nothing. Throws WriteError, or UsageError for a lease that was ended, and
    // then changes nothing.
    void change_lease(Lease& lease, std::vector<Share> shares) const;

    // Ends a lease that other processes hold: removes its file and notes in it who did that. Its
    // processes keep their memory, which then counts as a stranger's. Throws WriteError for a lease
    // of another user (root may end any), UsageError if it has ended already.
    void end_lease(const Claim& lease) const;

    // Removes dead files that this user may remove.
    std::vector<DeadFile> remove_dead(const Contents& now) const;

   private:
    friend class Directory;
    Turn(std::filesystem::path folder, Descriptor lock)
        : folder_(std::move(folder)), lock_(std::move(lock)) {}
    void note(const Grant& grant, const Contents& now) const;

    std::filesystem::path folder_;
    Descriptor lock_;
  };

  // Waits for at most `patience`; then throws BusyError, which names the process that has the turn.
  [[nodiscard]] Turn take_turn(Seconds patience = Seconds(3.0),
                               const std::stop_token& cancel = {}) const;

 private:
  explicit Directory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

// Now on the clock of Contents::at_ns, which all processes of a machine share and no user can set.
[[nodiscard]] std::int64_t monotonic_ns();

}  // namespace headroom::lease
