// The memory of each card that can still be leased: every lease passes this one test.
//
//   free - sum over leases of max(0, reserved - used by that lease's processes) - margin
//
// It is gpu::usable_now() of a card that carries that sum and the margin, so commands show the
// figure that leases are given by.
//
// The smaller of free and unreserved memory would be wrong: on a card of 24 GB a stranger uses 10,
// and a lease has reserved 8 that it does not use yet. Then 14 are free and 16 unreserved; both
// allow a lease of 12, and 30 are promised. This test leaves 14 - 8 = 6.
//
//   Look look = look_at(machine, before);          // both from before the turn
//   Rooms rooms = rooms_of(look, turn.contents()); // in the turn
#pragma once

#include "headroom/gpu/machine.h"
#include "headroom/lease/directory.h"
#include "headroom/lease/lease_of_process.h"

namespace headroom::lease {

// Kept free on each card. A driver allocates in pieces of 2 MiB and keeps tables and queues that
// grow with the processes and are charged to none; desktop windows come and go. 64 MiB are 0.26 %
// of 24 GiB.
inline constexpr Bytes kMargin{64LL << 20};

// None on a simulated card, whose figures are exact.
[[nodiscard]] Bytes margin_of(const gpu::Card& card);

// The memory that a process could be given on the card if nothing else were on it. 0 if its size is
// unknown.
[[nodiscard]] Bytes usable_when_empty(const gpu::Card& card);

// The facts for a decision: the cards, and the leases that use their memory.
struct Look {
  gpu::Machine machine;                   // with their margins
  Contents before;                        // the folder before the cards were sampled
  std::map<gpu::Uuid, UsedByLease> used;  // of the cards where it is known
  LeaseOfProcess lease_of;                // likewise
};

[[nodiscard]] Look look_at(gpu::Machine machine, Contents before);

// Memory of this card that is reserved and not used yet. `now` is the folder at the decision. A
// lease counts in full if it is newer than the look, or if it ended since: its memory may still be
// coming back.
[[nodiscard]] Bytes unused(const Look& look, const Contents& now, const gpu::Uuid& card);

// For cards with data no older than gpu::kFreshFor. No card at all if the look at the folder is too
// old, or if a lease cannot be read.
[[nodiscard]] Rooms rooms_of(const Look& look, const Contents& now,
                             Clock::time_point at = Clock::now());

// The present leases, to show them or to narrow a machine. Empty if there is no folder for leases;
// empty with a warning if the folder cannot carry leases. If it cannot be read, there is a warning,
// and any card may be reserved.
[[nodiscard]] Contents contents_now();

// For commands that show the machine: the cards with their unused reservations, so that
// usable_now() is the memory that a lease would be given.
[[nodiscard]] gpu::Machine with_promises(gpu::Machine machine, const Contents& contents);
[[nodiscard]] gpu::Machine with_promises(const Look& look);

}  // namespace headroom::lease
