// The folder in which the programs of a machine tell each other what they reserved
// (docs/formats/lease.md).
//
// Everybody may read it and make files in it, and nobody can alter or remove another user's (mode
// 1777). Looking needs no lock and no permission; whoever wants to change something takes his turn,
// one at a time. A turn ends with its process, and nothing slow is done in it.
//
//   const Directory directory = Directory::open();
//   Directory::Turn turn = directory.take_turn();
//   const Contents now = turn.contents();
//   if (has_room(now)) Lease lease = turn.make_lease(claim, now);
//
// Threads: a Directory may be used by many at once; each Turn is one thread's.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "headroom/lease/lease.h"
#include "headroom/lease/queue.h"

namespace headroom::lease {

// How long a look at the folder may be back when a decision rests on it. Grants are remembered for
// longer, so that between two looks none is missed.
inline constexpr Seconds kLookFreshFor{3.0};

// A file that nobody holds any more.
struct DeadFile {
  std::filesystem::path path;
  uid_t uid = 0;
  Bytes size{0};
};

// The folder at one moment.
struct Contents {
  std::int64_t at_ns = 0;  // on the monotonic clock: when looking began
  std::vector<Claim> leases;
  Line waiting;
  std::vector<Grant> grants;
  std::vector<DeadFile> dead;
  // Leases that somebody holds but that do not say of what: each may be of any card, and of all of
  // its memory.
  std::vector<std::string> riddles;
  std::vector<std::string> warnings;
  long long highest_ticket = 0;
};

// A place in the line, as a file that lives as long as this does. Others respect it while it is
// touched again and again.
class Place {
 public:
  Place(const Waiter& waiter, int descriptor, std::filesystem::path file);
  ~Place();
  Place(Place&& other) noexcept = default;
  Place& operator=(Place&& other) noexcept;  // the place from before ends with `other`

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] long long ticket() const { return ticket_; }
  // "I am still looking."
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
  // Of those whose file system carries leases the first that is there, for two folders would know
  // nothing of each other; else the first that can be made. Throws WriteError if none can be made,
  // UnavailableError if no file system will do (a network's).
  [[nodiscard]] static Directory open(const Paths& paths = candidates());
  // The same without making anything; nothing if there is none, so that nobody has leases.
  [[nodiscard]] static std::optional<Directory> existing(const Paths& paths = candidates());
  // This folder, made if it is not there.
  [[nodiscard]] static Directory at(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // Why leases here may not be seen by everybody who uses the cards; a sentence each.
  [[nodiscard]] std::vector<std::string> warnings() const;

  // What is there, without waiting for anybody. Throws BusyError if it cannot be read in full.
  [[nodiscard]] Contents contents() const;

  class Turn {
   public:
    ~Turn();
    Turn(Turn&& other) noexcept = default;
    Turn& operator=(Turn&&) = delete;

    [[nodiscard]] Contents contents() const;

    // `claim` with what is missing in it: identifier, ticket (if 0), owner, user, time. `now` is
    // this turn's look. Throws WriteError; nothing has changed then.
    [[nodiscard]] Lease make_lease(Claim claim, const Contents& now) const;
    [[nodiscard]] Place make_place(Waiter waiter, const Contents& now) const;

    // Ends a lease that others hold: its file goes, and they read in it who did that. What its
    // processes use stays theirs, and counts as a stranger's. Throws WriteError for a lease of
    // another user (root may end any), UsageError if it has ended already.
    void end_lease(const Claim& lease) const;

    // Removes what nobody holds, as far as this user may.
    std::vector<DeadFile> remove_dead(const Contents& now) const;

   private:
    friend class Directory;
    Turn(std::filesystem::path folder, Descriptor lock)
        : folder_(std::move(folder)), lock_(std::move(lock)) {}
    void note(const Grant& grant, const Contents& now) const;

    std::filesystem::path folder_;
    Descriptor lock_;
  };

  // Waits for at most `patience`; throws BusyError that names whose turn it is.
  [[nodiscard]] Turn take_turn(Seconds patience = Seconds(3.0),
                               const std::stop_token& cancel = {}) const;

 private:
  explicit Directory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

// Now on the clock of Contents::at_ns, which all processes of a machine share and nobody can set.
[[nodiscard]] std::int64_t monotonic_ns();

}  // namespace headroom::lease
