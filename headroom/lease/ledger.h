// What can still be promised of each card: the one test that every lease passes.
//
//   free - sum over leases of max(0, reserved - used by that lease's processes) - margin
//
// It is gpu::usable_now() of a card on which that sum and the margin are noted; what commands show
// and what a lease is given by are the same figure.
//
// Why not the lesser of what is free and what is not reserved: a card of 24 GB of which a stranger
// uses 10 and a lease has reserved 8, but not yet taken them, has 14 free and 16 unreserved; both
// say yes to 12, and 30 are promised. Here 14 - 8 = 6 are left.
//
//   Look look = look_at(machine, before);          // both from before the turn
//   Rooms rooms = rooms_of(look, turn.contents()); // in the turn
#pragma once

#include "headroom/gpu/card.h"
#include "headroom/lease/attribution.h"
#include "headroom/lease/directory.h"

namespace headroom::lease {

// Never promised, on each card. A driver hands memory out in pieces of 2 MiB and keeps tables and
// queues of its own that grow with its processes and that no process is charged with; a desktop's
// windows come and go. 64 MiB are a quarter of a percent of a card of 24 GiB.
inline constexpr Bytes kMargin{64LL << 20};

// A simulated card has none: it has no driver, and its figures are exact.
[[nodiscard]] Bytes margin_of(const gpu::Card& card);

// What a decision rests on: the cards, and whose the memory was that was in use.
struct Look {
  gpu::Machine machine;                   // with their margins
  Contents before;                        // the folder before the cards were sampled
  std::map<gpu::Uuid, UsedByLease> used;  // of the cards of which it is known
};

[[nodiscard]] Look look_at(gpu::Machine machine, Contents before);

// What leases hold of this card and do not use yet. `now` is the folder at the decision. A lease
// counts in full that is newer than the look, and one that ended since: what it took meanwhile may
// still be coming back, and the look does not know of it.
[[nodiscard]] Bytes unused(const Look& look, const Contents& now, const gpu::Uuid& card);

// Of the cards whose data is not older than gpu::kFreshFor. None at all if the folder was last
// looked at too long ago, or holds a lease that cannot be read.
[[nodiscard]] Rooms rooms_of(const Look& look, const Contents& now,
                             Clock::time_point at = Clock::now());

// What is leased now, to show or to narrow a machine by. Nothing if there is no folder for leases,
// or, which is a warning, one that can carry none. If it cannot be read that is a warning, too, and
// then any card may be reserved.
[[nodiscard]] Contents contents_now();

// For commands that show the machine: the cards with what leases hold and do not use, so that
// usable_now() of them is what a lease would be given. Without a folder nobody holds anything.
[[nodiscard]] gpu::Machine with_promises(gpu::Machine machine, const Contents& contents);

}  // namespace headroom::lease
