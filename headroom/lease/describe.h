// How people read about leases.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/select.h"
#include "headroom/lease/ledger.h"

namespace headroom::lease {

// Whose it is: the owner of its file, whatever it says itself. Only root's files are believed, for
// root may act for others.
[[nodiscard]] std::string user_of(const Claim& claim);
[[nodiscard]] std::string user_of(const Waiter& waiter);

// "lease 7f3a9c1e of alice, PID 1234 (python train.py)"; without the number where it would be
// somebody else's, in another PID namespace.
[[nodiscard]] std::string describe(const Claim& claim);

// Leases that have reserved memory for an hour and use none of it now: a sentence each.
inline constexpr Seconds kLongUnused{3600};
[[nodiscard]] std::vector<std::string> long_unused(const Look& look,
                                                   WallTime now = std::chrono::system_clock::now());

// What the sentence of a selection does not know: who reserved what of these cards and does not use
// it yet, how many are first, and the position in the line of the waiter with this identifier.
// Empty if there is nothing to say.
[[nodiscard]] std::string also_in_the_way(const Look& look, const std::vector<gpu::Uuid>& cards,
                                          const std::string& id);

}  // namespace headroom::lease
