// Leases in words.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/select.h"
#include "headroom/lease/ledger.h"

namespace headroom::lease {

// The owner of its file, whatever user the file names. Only a file of root may name another user.
[[nodiscard]] std::string user_of(const Entry& entry);

// "lease 7f3a9c1e of alice, PID 1234 (python train.py)"; without the number if it is from another
// PID namespace.
[[nodiscard]] std::string describe(const Claim& claim);

// Leases that have reserved memory for an hour and use none of it now, one sentence each.
inline constexpr Seconds kLongUnused{3600};
[[nodiscard]] std::vector<std::string> long_unused(const Look& look,
                                                   WallTime now = std::chrono::system_clock::now());

// The part that a selection's sentence lacks: unused reservations on these cards with their
// holders, and the position in the queue of the waiter `id`. "" if there is none.
[[nodiscard]] std::string also_in_the_way(const Look& look, const std::vector<gpu::Uuid>& cards,
                                          const std::string& id);

}  // namespace headroom::lease
