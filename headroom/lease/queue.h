// Who goes first: first come, first served, with bounded overtaking.
//
// Whoever asks gets a ticket, and no ticket is given twice. Somebody may go before a waiter with a
// smaller ticket only while that waiter could not be satisfied anyway, and at most kMostPasses
// times; after that the waiter's cards are left alone until it has got its place.
//
// Pure functions over what the folder says (directory.h) and what the cards have (ledger.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/lease/lease.h"

namespace headroom::lease {

inline constexpr int kMostPasses = 8;
// A waiter that has not looked for so long (it is stopped, or its machine was) holds up nobody.
inline constexpr Seconds kLooksWithin{10.0};

// Of whoever has not asked yet: behind everybody.
inline constexpr long long kLastTicket = 1LL << 62;

struct Wish {
  Bytes need;  // on each card
  int count = 1;
  std::vector<gpu::Uuid> cards;  // on any of these
};

struct Waiter {
  std::string id;
  long long ticket = 0;
  ProcessIdentity owner;
  std::string user;
  std::string command;
  WallTime since;
  Wish wish;
  std::string why;      // what it said when it last had to wait; for people
  bool looking = true;  // within the last kLooksWithin
  uid_t uid = 0;
};

// That somebody got something: what passes are counted by, and what tells of leases so short that
// nobody saw them.
struct Grant {
  long long ticket = 0;
  std::int64_t at_ns = 0;  // on the monotonic clock
  std::string id;          // of the lease
  std::vector<Share> shares;
};

// What can still be promised of each card; a card that is missing promises nothing.
using Rooms = std::map<gpu::Uuid, Bytes>;

// Where the wish would be met, roomiest cards first; nothing if it cannot be now.
[[nodiscard]] std::optional<std::vector<gpu::Uuid>> place(const Rooms& rooms, const Wish& wish);

// How often somebody who came later got something of the waiter's cards.
[[nodiscard]] int passes(const Waiter& waiter, const std::vector<Grant>& grants);

// What those who came before `ticket` leave: the room of those who could be satisfied now, and all
// cards of those who were passed too often, are theirs.
[[nodiscard]] Rooms left_by_earlier(Rooms rooms, long long ticket,
                                    const std::vector<Waiter>& waiting,
                                    const std::vector<Grant>& grants);

}  // namespace headroom::lease
