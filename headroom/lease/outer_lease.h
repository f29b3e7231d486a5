// The lease in which this process was started: a `headroom run` above it made the lease and names
// it in HEADROOM_LEASE. What runs here uses that lease's cards and memory, and reserves nothing of
// its own: it would wait for the reservation that was made for it.
//
//   if (const auto outer = OuterLease::find(contents); outer && outer->concerns(machine)) {
//     outer->require(request, narrowed);              // throws: larger than the lease
//     machine = outer->within(narrowed, contents);    // what its processes may still use
//   }
#pragma once

#include <optional>

#include "headroom/gpu/select.h"
#include "headroom/lease/directory.h"

namespace headroom::lease {

class OuterLease {
 public:
  // Nothing if HEADROOM_LEASE is unset, or names a lease that has ended or that neither this
  // process nor one above it holds: the variable alone proves nothing.
  [[nodiscard]] static std::optional<OuterLease> find(const Contents& contents);

  [[nodiscard]] const Claim& claim() const { return claim_; }

  // Whether it has cards of this machine. One of real cards says nothing of simulated ones.
  [[nodiscard]] bool concerns(const gpu::Machine& machine) const;

  // Its cards alone, with what others have promised of them: usable_now() of such a card is what
  // the lease's processes may still use.
  [[nodiscard]] gpu::Machine within(gpu::Machine machine, const Contents& contents) const;

  // How many cards of this machine it has.
  [[nodiscard]] int cards_of(const gpu::Machine& machine) const;

  // Throws UsageError if the request is larger than the lease: waiting would not help.
  void require(const gpu::DeviceRequest& request, const gpu::Machine& machine) const;

 private:
  explicit OuterLease(Claim claim) : claim_(std::move(claim)) {}

  Claim claim_;
};

// The name that HEADROOM_LEASE has, if it is set.
[[nodiscard]] std::optional<std::string> named_outer_lease();

}  // namespace headroom::lease
