#include "headroom/lease/lease.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "headroom/base/text.h"
#include "headroom/lease/detail/locked_file.h"

namespace headroom::lease {

Bytes reserved_on(const Claim& claim, const gpu::Uuid& card) {
  Bytes reserved{0};
  for (const Share& share : claim.shares)
    if (share.card == card) reserved = std::min(reserved + share.reserved, kMostReserved);
  return reserved;
}

std::uint64_t this_pid_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

bool is_this_pid_namespace(std::uint64_t pid_namespace) {
  return pid_namespace != 0 && pid_namespace == this_pid_namespace();
}

std::optional<Lease> Lease::inherited(Claim claim, int descriptor, std::filesystem::path file) {
  struct stat facts {};
  const bool is_it =
      ::fstat(descriptor, &facts) == 0 && FileNumber{facts.st_dev, facts.st_ino} == claim.file;
  if (!is_it) return {};
  return Lease(std::move(claim), descriptor, std::move(file));
}

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(claim_, other.claim_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(file_, other.file_);
  return *this;
}

// An ended lease's file has no name any more, and its last line names the user.
std::optional<std::string> Lease::ended_by() const {
  struct stat facts {};
  if (!descriptor_.is_open() || ::fstat(descriptor(), &facts) != 0 || facts.st_nlink > 0) return {};
  constexpr off_t kMost = 256;
  const off_t from = std::max<off_t>(0, facts.st_size - kMost);
  std::array<char, kMost> tail{};
  const ssize_t got = ::pread(descriptor(), tail.data(), tail.size(), from);
  const std::string_view text(tail.data(), static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  const std::size_t at = text.rfind(detail::kEndedBy);
  if (at == std::string_view::npos) return "a user who removed its file";
  return without_controls(std::string(trim(text.substr(at + detail::kEndedBy.size()))));
}

// A child that inherited the descriptor keeps the lease and needs the file.
// Directory::remove_dead() removes the file once no process holds the lock.
Lease::~Lease() {
  if (!descriptor_.is_open()) return;
  descriptor_.close();
  if (!detail::is_locked(file_)) ::unlink(file_.c_str());
}

}  // namespace headroom::lease
