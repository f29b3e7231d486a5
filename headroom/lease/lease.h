// Reservations of card memory among the programs of a machine: no daemon, no root, several users.
//
// A lease is a file in a shared folder (directory.h) with a lock on an open descriptor, which the
// job's processes inherit. The kernel drops the lock when the last of them is gone, however it
// ended, and a file without a lock is nobody's: process numbers decide nothing.
//
//   Directory directory = Directory::open();
//   Acquired got = acquire(directory, sampler, {.need = 10_GiB}, {}, "python train.py");
//   spawn(command, inherit = got.lease->descriptor());
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

// How a descriptor of a file is recognised. Each file system counts for itself, so a number alone
// may be another file's.
struct FileNumber {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileNumber&) const = default;
};

// What a lease's file says.
struct Claim {
  std::string id;         // "7f3a9c1e": the name of its file, so that no two have the same
  long long ticket = 0;   // the order in which jobs asked
  ProcessIdentity owner;  // who asked; a name for people, and where attribution starts
  std::string user;
  std::string command;
  WallTime since;
  std::vector<Share> shares;

  std::uint64_t pid_namespace = 0;  // the one in which `owner` is a number

  // Not what the file says but what it is.
  uid_t uid = 0;  // its owner: nobody else can have written it
  FileNumber file;
};

// The PID namespace of this process; 0 where that cannot be told.
[[nodiscard]] std::uint64_t this_pid_namespace();
// Whether a process number of that namespace is the same process's here.
[[nodiscard]] bool is_this_pid_namespace(std::uint64_t pid_namespace);

// No card has that much. Whoever claims more (any user may write what he likes) claims this, so
// that sums of claims stay numbers.
inline constexpr Bytes kMostReserved{1LL << 50};

// What the claim has of this card; 0 for none.
[[nodiscard]] Bytes reserved_on(const Claim& claim, const gpu::Uuid& card);

// Holds the lock. The lease ends when this and every inherited descriptor are closed.
class Lease {
 public:
  // Takes the descriptor over, which holds the lock on `file`.
  Lease(Claim claim, int descriptor, std::filesystem::path file)
      : claim_(std::move(claim)), descriptor_(descriptor), file_(std::move(file)) {}
  ~Lease();  // removes the file, unless another process still holds the lease
  Lease(Lease&& other) noexcept = default;
  Lease& operator=(Lease&& other) noexcept;  // the lease from before ends with `other`

  [[nodiscard]] const Claim& claim() const { return claim_; }
  // Opened without O_CLOEXEC: a child that is started inherits it.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  // Who ended it from outside (Directory::Turn::end_lease); nothing while it holds.
  [[nodiscard]] std::optional<std::string> ended_by() const;

 private:
  Claim claim_;
  Descriptor descriptor_;
  std::filesystem::path file_;
};

}  // namespace headroom::lease
