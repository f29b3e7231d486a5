// Reserves GPU memory among the programs of one machine, without a daemon or root, for several
// users. Leases are advisory: a program that takes none can still allocate the memory.
//
// A lease is a file in a shared folder (directory.h) with a lock on an open descriptor, which the
// job's processes inherit. The kernel drops the lock when the last of them is gone, however it
// ended. A file whose lock is gone is not a lease. Process numbers decide nothing: they are reused,
// and differ between containers.
//
//   Directory directory = Directory::open();                                   // directory.h
//   Acquired got = acquire(directory, sampler, {.need = 10_GiB}, {}, command);  // acquire.h
//   if (!got.lease) return 75;
//   // A program started now inherits got.lease->descriptor(), and with it the lease.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/descriptor.h"
#include "headroom/base/process.h"
#include "headroom/base/time.h"
#include "headroom/gpu/uuid.h"

namespace headroom::lease {

// A part of one card's memory.
struct Share {
  gpu::Uuid card;
  Bytes reserved;
};

// Identifies a file behind a descriptor. Inode numbers are unique only within one file system.
struct FileNumber {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileNumber&) const = default;
};

// The fields that the files of leases and of waiters share.
struct Entry {
  std::string id;         // "7f3a9c1e": the name of its file, and thus unique
  long long ticket = 0;   // a smaller ticket came earlier
  ProcessIdentity owner;  // the process that made it; memory of its tree is the lease's
  std::string user;
  std::string command;
  WallTime since;
  std::uint64_t pid_namespace = 0;  // to which owner.pid belongs
  uid_t uid = 0;  // the file's owner, by fstat: only that user can have written it
};

// The content of a lease's file.
struct Claim : Entry {
  std::vector<Share> shares;
  FileNumber file;  // by fstat, not from the text
};

// The PID namespace of this process; 0 if unknown.
[[nodiscard]] std::uint64_t this_pid_namespace();
// True if process numbers of that namespace are valid here.
[[nodiscard]] bool is_this_pid_namespace(std::uint64_t pid_namespace);

// The largest share that a lease may state. Any user may write any number into a lease's file; one
// with a larger number counts as unreadable (Contents::unreadable_leases). Sums stop here, too, so
// they cannot overflow.
inline constexpr Bytes kMostReserved{1LL << 50};

// Memory that the claim reserves on this card.
[[nodiscard]] Bytes reserved_on(const Claim& claim, const gpu::Uuid& card);

// Owns a lease. It ends when this object and every inherited copy of its descriptor are gone.
class Lease {
 public:
  // Owns the descriptor, which holds the lock on `file`.
  Lease(Claim claim, int descriptor, std::filesystem::path file)
      : claim_(std::move(claim)), descriptor_(descriptor), file_(std::move(file)) {}
  ~Lease();  // removes the file, unless another process still holds the lease
  Lease(Lease&& other) noexcept = default;
  Lease& operator=(Lease&& other) noexcept;  // swaps: the former lease ends when `other` does

  // The lease that this process inherited with the descriptor, as `claim` of a folder describes it.
  [[nodiscard]] static std::optional<Lease> inherited(Claim claim, int descriptor,
                                                      std::filesystem::path file);

  [[nodiscard]] const Claim& claim() const { return claim_; }
  // Without O_CLOEXEC: each program that this process starts inherits it, and keeps the lease.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // The user who ended the lease early (Directory::Turn::end_lease); empty while it is valid. After
  // that its memory is not reserved any more, although this object still exists.
  [[nodiscard]] std::optional<std::string> ended_by() const;

 private:
  Claim claim_;
  Descriptor descriptor_;
  std::filesystem::path file_;
};

}  // namespace headroom::lease
