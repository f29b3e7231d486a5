// The lease in which this process was started: a `headroom run` above it made the lease and names
// it in HEADROOM_LEASE. Jobs in here use its cards and memory and reserve nothing, because they
// would wait for the reservation that was made for them.
//
//   if (const auto outer = OuterLease::find(contents); outer && outer->concerns(machine)) {
//     outer->require(request, narrowed);              // throws: larger than the lease
// machine = outer->within(narrowed, contents);    // memory its processes may still use
//   }
#pragma once

#include <optional>

#include "headroom/gpu/select.h"
#include "headroom/lease/directory.h"

namespace headroom::lease {

class OuterLease {
 public:
  // std::nullopt if HEADROOM_LEASE is unset, or names a lease that has ended or that neither this
  // process nor an ancestor holds: the variable alone proves nothing.
  [[nodiscard]] static std::optional<OuterLease> find(const Contents& contents);

  [[nodiscard]] const Claim& claim() const { return claim_; }

  // True if it has cards of this machine. A lease of real cards does not concern simulated ones.
  [[nodiscard]] bool concerns(const gpu::Machine& machine) const;

  // Only its cards, with the reservations of other leases: usable_now() of such a card is the
  // memory that the lease's processes may still use.
  [[nodiscard]] gpu::Machine within(gpu::Machine machine, const Contents& contents) const;

  // The number of its cards on this machine.
  [[nodiscard]] int cards_of(const gpu::Machine& machine) const;

  // Throws UsageError if the request is larger than the lease: waiting would not help.
  void require(const gpu::DeviceRequest& request, const gpu::Machine& machine) const;

 private:
  explicit OuterLease(Claim claim) : claim_(std::move(claim)) {}

  Claim claim_;
};

// The value of HEADROOM_LEASE, if it is set.
[[nodiscard]] std::optional<std::string> named_outer_lease();

}  // namespace headroom::lease
