// Who goes first: first come, first served, with bounded overtaking.
//
// Whoever asks gets a ticket, and no ticket is given twice. Somebody may go before a waiter with a
// smaller ticket while that waiter could not be satisfied anyway. That is a pass; of passes a
// waiter has so many and no more:
//
// - After kMostPasses of them as many cards are kept for it as it wants, those that lack least of
//   what it needs. Others go on with the rest of the machine.
// - After each kMostPasses more, one card more is kept, again the nearest.
//
// So it waits for leases to end, and not for newcomers: while the same cards are nearest, no later
// lease begins on them, and theirs end. They may change: a stranger's program grows on one of them,
// or never leaves it, or those who look at different moments disagree about the nearest. Whoever
// gets by then is counted like any other, until at last all cards are kept: nobody is passed more
// often than kMostPasses times for each card that it could have.
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

// Where counting ends, far beyond what honest programs reach. Whoever is given it stands by the
// birth of his file.
inline constexpr long long kMostTicket = 1LL << 60;

struct Wish {
  Bytes need = {};  // on each card
  int count = 1;
  std::vector<gpu::Uuid> cards = {};  // on any of these
};

struct Waiter {
  std::string id;
  long long ticket = 0;
  ProcessIdentity owner;
  std::string user;
  std::string command;
  WallTime since;
  Wish wish;
  std::string why;                  // what it said when it last had to wait; for people
  std::uint64_t pid_namespace = 0;  // the one in which `owner` is a number

  // Not what the file says but what it is.
  bool looking = true;  // within the last kLooksWithin
  uid_t uid = 0;
  std::optional<WallTime> born;  // as the kernel noted it; unknown on some file systems
};

// That somebody got something: what passes are counted by, and what tells of leases so short that
// nobody saw them.
struct Grant {
  long long ticket = 0;
  std::int64_t at_ns = 0;  // on the monotonic clock
  std::string id;          // of the lease
  std::vector<Share> shares;
};

// Those who wait, first come first.
using Line = std::vector<Waiter>;

// In the order of their tickets, and of equal tickets in that of their files' births. A ticket is
// what a file says, and anybody may write a small one: a waiter whose file was born clearly after
// one with a greater ticket gets that ticket, and so stands behind it.
[[nodiscard]] Line in_order(std::vector<Waiter> waiting);

// Where in the line the waiter with this identifier stands; who is not in it is behind everybody.
[[nodiscard]] Line::const_iterator spot_of(const Line& line, const std::string& id);

// 1 for whoever is next. Those who do not look do not count.
[[nodiscard]] int position(const Line& line, const std::string& id);

// What can still be promised of each card; a card that is missing promises nothing.
using Rooms = std::map<gpu::Uuid, Bytes>;

// Where the wish would be met, roomiest cards first; nothing if it cannot be now.
[[nodiscard]] std::optional<std::vector<gpu::Uuid>> place(const Rooms& rooms, const Wish& wish);

// How often somebody who came later got something of the waiter's cards.
[[nodiscard]] int passes(const Waiter& waiter, const std::vector<Grant>& grants);

// What those who came before this one leave to it: the room of those who could be satisfied now,
// and the cards that are kept for those who were passed too often, are theirs.
[[nodiscard]] Rooms left_by_earlier(Rooms rooms, const Line& line, const std::string& id,
                                    const std::vector<Grant>& grants);

}  // namespace headroom::lease
