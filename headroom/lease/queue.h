// The order of waiters: first come, first served, with bounded overtaking.
//
// Each request gets a ticket, and no ticket is given twice. A job may go before a waiter with a
// smaller ticket while that waiter's request does not fit anyway. That is a pass, and passes are
// limited:
//
// - After kMostPasses passes as many cards are kept for the waiter as it wants, the nearest to its
//   need. Other jobs use the rest of the machine.
// - After each kMostPasses more, one more card is kept, again the nearest.
//
// So the waiter depends on leases that end, not on new ones: while the same cards are nearest, no
// later lease begins on them. The nearest cards may change: another program grows on one of them or
// never leaves it, or jobs that look at different moments disagree. Jobs that pass meanwhile count,
// too, until all cards are kept: a waiter is passed at most kMostPasses times for each card that it
// could use.
//
// Pure functions of the folder's contents (directory.h) and the cards' memory (ledger.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/lease/lease.h"

namespace headroom::lease {

inline constexpr int kMostPasses = 8;
// A waiter that has not looked for so long (it is stopped, or its machine was) blocks no other job.
inline constexpr Seconds kLooksWithin{10.0};

// The largest ticket, far beyond honest use. Waiters with this ticket stand in the order of their
// files' creation times.
inline constexpr long long kMostTicket = 1LL << 60;

struct Wish {
  Bytes need = {};  // on each card
  int count = 1;
  std::vector<gpu::Uuid> cards = {};  // on any of these
};

struct Waiter : Entry {
  Wish wish;
  std::string why;  // the reason for its wait, for people

  // From the file itself, not from its content.
  bool looking = true;           // within the last kLooksWithin
  std::optional<WallTime> born;  // the kernel's creation time; unknown on some file systems
};

// A record that a lease was given. Passes are counted by grants, and they show leases too short to
// be seen.
struct Grant {
  long long ticket = 0;
  std::int64_t at_ns = 0;  // on the monotonic clock
  std::string id;          // of the lease
  std::vector<Share> shares;
};

// The waiters, first come first.
using Queue = std::vector<Waiter>;

// By ticket, and equal tickets by creation time of the file. Any user may write a small ticket into
// a file: so a waiter whose file is clearly newer than one with a greater ticket gets that ticket,
// and stands behind it.
[[nodiscard]] Queue in_order(std::vector<Waiter> waiting);

// The waiter with this identifier; the end of the queue if it is not in it.
[[nodiscard]] Queue::const_iterator spot_of(const Queue& queue, const std::string& id);

// 1 for the next waiter. Waiters that do not look do not count.
[[nodiscard]] int position(const Queue& queue, const std::string& id);

// Memory of each card that can still be leased; none of a missing card.
using Rooms = std::map<gpu::Uuid, Bytes>;

// Cards that satisfy the wish, roomiest first; std::nullopt if it does not fit now.
[[nodiscard]] std::optional<std::vector<gpu::Uuid>> cards_for(const Rooms& rooms, const Wish& wish);

// Counts the later requests that got a lease on one of the waiter's cards.
[[nodiscard]] int passes(const Waiter& waiter, const std::vector<Grant>& grants);

// The rooms that earlier waiters leave: without the memory of those whose request fits now, and
// without the cards kept for those that were passed too often.
[[nodiscard]] Rooms left_by_earlier(Rooms rooms, const Queue& queue, const std::string& id,
                                    const std::vector<Grant>& grants);

}  // namespace headroom::lease
