#include "headroom/lease/lease.h"

#include <unistd.h>

#include <utility>

#include "headroom/lease/detail/locked_file.h"

namespace headroom::lease {

Bytes reserved_on(const Claim& claim, const gpu::Uuid& card) {
  Bytes reserved{0};
  for (const Share& share : claim.shares)
    if (share.card == card) reserved += share.reserved;
  return reserved;
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

// A child that inherited the descriptor keeps the lease, so its file has to stay; whoever finds it
// without a lock later removes it.
void Lease::end() noexcept {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  if (!detail::is_locked(file_)) ::unlink(file_.c_str());
}

}  // namespace headroom::lease
