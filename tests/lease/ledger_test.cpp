// The memory that can be promised, and the amounts that are subtracted from it.

#include "headroom/lease/ledger.h"

#include <gtest/gtest.h>

#include "tests/gpu/fixtures/cards.h"

namespace headroom::lease {
namespace {

using namespace headroom::literals;
using gpu::fixtures::card;
using gpu::fixtures::machine_of;
using gpu::fixtures::numbered;

Claim claim(const std::string& id, Bytes reserved, int on = 0) {
  Claim claim;
  claim.id = id;
  claim.shares = {{numbered(on), reserved}};
  return claim;
}

Contents contents(std::vector<Claim> leases = {}) {
  Contents now;
  now.at_ns = monotonic_ns();
  now.leases = std::move(leases);
  return now;
}

// A card with this much in use, of which leases use the given parts.
Look look(Bytes used, std::vector<Claim> leases = {}, const UsedByLease& of_leases = {}) {
  Look look = look_at(machine_of({card(0, used)}), contents(std::move(leases)));
  look.used = {{numbered(0), of_leases}};
  return look;
}

Bytes room(const Look& look, const Contents& now) {
  return rooms_of(look, now).at(numbered(0)) + kMargin;
}

// A card of 24 GiB; a stranger uses 10, and a lease of 8 is still loading. Free: 14; not reserved:
// 16. The smaller of these allows a lease of 12, and then 30 are promised.
TEST(Ledger, RefusesARequestThatFitsBothFreeAndUnreservedMemory) {
  const Look now = look(10_GiB, {claim("a", 8_GiB)});
  EXPECT_EQ(room(now, now.before), 6_GiB);
  EXPECT_LT(room(now, now.before), 12_GiB);
}

TEST(Ledger, UsedMemoryOfALeaseCountsOnce) {
  const std::vector<Claim> leases{claim("a", 8_GiB)};
  EXPECT_EQ(room(look(15_GiB, leases, {{"a", 5_GiB}}), contents(leases)), 6_GiB);
  EXPECT_EQ(room(look(18_GiB, leases, {{"a", 8_GiB}}), contents(leases)), 6_GiB);
}

TEST(Ledger, ALeaseThatUsesMoreThanItReservedDoesNotReduceAnother) {
  const std::vector<Claim> leases{claim("a", 8_GiB), claim("b", 4_GiB)};
  EXPECT_EQ(room(look(11_GiB, leases, {{"a", 11_GiB}}), contents(leases)), 9_GiB);
}

TEST(Ledger, MemoryOfNoKnownLeaseCountsAsUsed) {
  const std::vector<Claim> leases{claim("a", 8_GiB)};
  EXPECT_EQ(room(look(8_GiB, leases), contents(leases)), 8_GiB)
      << "used by the lease or by a stranger: unknown";
}

TEST(Ledger, ALeaseThatIsNewerThanTheLookCountsInFull) {
  EXPECT_EQ(room(look(10_GiB), contents({claim("a", 8_GiB)})), 6_GiB);
}

// It may have taken memory after the look and died; its memory comes back slowly.
TEST(Ledger, ALeaseThatEndedSinceTheLookStillCounts) {
  EXPECT_EQ(room(look(10_GiB, {claim("a", 8_GiB)}), contents()), 6_GiB);
}

TEST(Ledger, ALeaseThatCameAndWentSinceTheLookStillCounts) {
  const Look before = look(10_GiB);
  Contents now = contents();
  now.grants = {
      {.ticket = 1, .at_ns = before.before.at_ns + 1, .id = "a", .shares = {{numbered(0), 8_GiB}}}};
  EXPECT_EQ(room(before, now), 6_GiB);
  now.grants[0].at_ns = before.before.at_ns - 1;
  EXPECT_EQ(room(before, now), 14_GiB) << "known to be over when it was looked";
}

TEST(Ledger, ALeaseInSeveralListsCountsOnce) {
  const Look before = look(10_GiB, {claim("a", 8_GiB)});
  Contents now = contents({claim("a", 8_GiB)});
  now.grants = {{.ticket = 1, .at_ns = now.at_ns, .id = "a", .shares = {{numbered(0), 8_GiB}}}};
  EXPECT_EQ(room(before, now), 6_GiB);
}

TEST(Ledger, LeasesOfOtherCardsDoNotCount) {
  EXPECT_EQ(room(look(10_GiB), contents({claim("a", 8_GiB, 5)})), 14_GiB);
}

TEST(Ledger, DataOlderThanTwoSecondsDecidesNothing) {
  const Look now = look(0_GiB);
  const auto sampled = *now.machine.cards[0].sampled;
  EXPECT_EQ(rooms_of(now, now.before, sampled + std::chrono::milliseconds(2000)).size(), 1u);
  EXPECT_TRUE(rooms_of(now, now.before, sampled + std::chrono::milliseconds(2001)).empty());
}

TEST(Ledger, ALookAtTheFolderTooLongAgoDecidesNothing) {
  const Look before = look(0_GiB);
  Contents now = contents();
  now.at_ns = before.before.at_ns + 3'100'000'000;
  EXPECT_TRUE(rooms_of(before, now).empty());
}

TEST(Ledger, AnUnreadableLeaseReservesEveryCard) {
  const Look before = look(0_GiB);
  Contents now = contents();
  now.unreadable_leases = {"x.lease"};
  EXPECT_TRUE(rooms_of(before, now).empty());
}

// A hundred files that any user may write once made the sum run over, and the card seem endless.
TEST(Ledger, ExcessiveClaimsLeaveNothing) {
  std::vector<Claim> greedy;
  for (int i = 0; i < 100; ++i) {
    greedy.push_back(claim(std::to_string(i), kMostReserved));
    greedy.back().shares.resize(1000, greedy.back().shares[0]);
  }
  const Look now = look(0_GiB, greedy);
  EXPECT_EQ(rooms_of(now, now.before).at(numbered(0)), 0_GiB);
}

// A user may write grants under another lease's name; the largest amount counts.
TEST(Ledger, ASmallGrantUnderALeasesNameDoesNotReduceIt) {
  const Look before = look(10_GiB);
  Contents now = contents();
  now.grants = {{.ticket = 1, .at_ns = now.at_ns, .id = "a", .shares = {{numbered(0), Bytes{1}}}},
                {.ticket = 1, .at_ns = now.at_ns, .id = "a", .shares = {{numbered(0), 8_GiB}}}};
  EXPECT_EQ(room(before, now), 6_GiB);
}

TEST(Ledger, RoomsAreNeverNegative) {
  const Look now = look(23_GiB, {claim("a", 8_GiB)});
  EXPECT_EQ(rooms_of(now, now.before).at(numbered(0)), 0_GiB);
}

TEST(Ledger, ACardForOneProcessAtATimeBelongsToItsLease) {
  Look now = look(0_GiB, {claim("a", 1_GiB)});
  now.machine.cards[0].compute_mode = gpu::ComputeMode::exclusive_process;
  EXPECT_EQ(rooms_of(now, now.before).at(numbered(0)), 0_GiB);
}

TEST(Ledger, OldProcessListsCreditNoLease) {
  gpu::Card mine = card(0, 5_GiB);
  mine.processes = {gpu::fixtures::process(::getpid(), 5_GiB)};
  Claim own = claim("a", 8_GiB);
  own.owner = this_process();
  own.uid = ::geteuid();
  mine.processes_sampled = *mine.sampled - std::chrono::milliseconds(1);
  const Look now = look_at(machine_of({mine}), contents({own}));
  EXPECT_EQ(unused(now, now.before, mine.uuid), 8_GiB);
}

TEST(Promises, AreTheFreeMemoryThatIsNotUsable) {
  const gpu::Machine shown =
      with_promises(machine_of({card(0, 10_GiB), card(1)}), contents({claim("a", 8_GiB)}));
  EXPECT_EQ(usable_now(shown.cards[0]), 6_GiB - kMargin);
  EXPECT_EQ(usable_now(shown.cards[1]), 24_GiB - kMargin);
  EXPECT_EQ(shown.cards[0].memory->free, 14_GiB);
  EXPECT_EQ(shown.cards[0].withheld.now, 8_GiB);
}

// They once differed by the margin: `gpus` showed 64 MiB that no lease could have.
TEST(Promises, AreTheFiguresThatDecide) {
  gpu::Card exclusive = card(2);
  exclusive.compute_mode = gpu::ComputeMode::exclusive_process;
  gpu::Card simulated = card(3, 10_GiB);
  simulated.simulated = true;
  const Contents now = contents({claim("a", 8_GiB), claim("b", 1_GiB, 2), claim("c", 3_GiB, 3)});
  const gpu::Machine machine = machine_of({card(0, 10_GiB), card(1), exclusive, simulated});
  const Rooms rooms = rooms_of(look_at(machine, now), now);
  for (const gpu::Card& shown : with_promises(machine, now).cards)
    EXPECT_EQ(usable_now(shown), rooms.at(shown.uuid)) << shown.index;
}

TEST(Promises, KeepNoMarginOnASimulatedCard) {
  gpu::Card simulated = card(0, 10_GiB);
  simulated.simulated = true;
  const Look look = look_at(machine_of({simulated}), contents({claim("a", 8_GiB)}));
  EXPECT_EQ(rooms_of(look, look.before).at(numbered(0)), 6_GiB);
}

}  // namespace
}  // namespace headroom::lease
