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

Lease::~Lease() {
  end();
}

Lease::Lease(Lease&& other) noexcept
    : claim_(std::move(other.claim_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      file_(std::move(other.file_)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    end();
    claim_ = std::move(other.claim_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    file_ = std::move(other.file_);
  }
  return *this;
}

// Its file has lost its name, and the last line says by whom.
std::optional<std::string> Lease::ended_by() const {
  struct stat facts {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &facts) != 0 || facts.st_nlink > 0) return {};
  constexpr off_t kMost = 256;
  const off_t from = std::max<off_t>(0, facts.st_size - kMost);
  std::array<char, kMost> tail{};
  const ssize_t got = ::pread(descriptor_, tail.data(), tail.size(), from);
  const std::string_view text(tail.data(), static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  const std::size_t at = text.rfind(detail::kEndedBy);
  if (at == std::string_view::npos) return "a user who removed its file";
  return without_controls(std::string(trim(text.substr(at + detail::kEndedBy.size()))));
}

// A child that inherited the descriptor keeps the lease, so its file has to stay; whoever finds it
// without a lock later removes it.
void Lease::end() noexcept {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  if (!detail::is_locked(file_)) ::unlink(file_.c_str());
}

}  // namespace headroom::lease
