// The order of waiters.

#include "headroom/lease/queue.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/lease/fixtures/shared_card.h"

namespace headroom::lease {
namespace {

using namespace fixtures;

Waiter waiter(long long ticket, Bytes need, std::vector<int> cards, int count = 1) {
  Waiter waiter;
  waiter.id = std::to_string(ticket);
  waiter.ticket = ticket;
  waiter.wish = {.need = need, .count = count, .cards = {}};
  for (const int card : cards) waiter.wish.cards.push_back(uuid_of(card));
  return waiter;
}

std::vector<Grant> grants(int count, long long first_ticket, int card) {
  std::vector<Grant> all;
  for (int i = 0; i < count; ++i)
    all.push_back({.ticket = first_ticket + i,
                   .at_ns = 1,
                   .id = std::to_string(i),
                   .shares = {{uuid_of(card), 1_GiB}}});
  return all;
}

const char* const kNobody = "";  // who has no place in the line
const Rooms kTwoCards{{uuid_of(0), 10_GiB}, {uuid_of(1), 20_GiB}};

TEST(CardsFor, IsOnTheRoomiestCards) {
  EXPECT_EQ(cards_for(kTwoCards, waiter(1, 5_GiB, {0, 1}).wish), std::vector{uuid_of(1)});
  EXPECT_EQ(cards_for(kTwoCards, waiter(1, 5_GiB, {0}).wish), std::vector{uuid_of(0)});
}

TEST(CardsFor, IsAllCardsOrNone) {
  EXPECT_EQ(cards_for(kTwoCards, waiter(1, 5_GiB, {0, 1}, 2).wish),
            (std::vector{uuid_of(1), uuid_of(0)}));
  EXPECT_FALSE(cards_for(kTwoCards, waiter(1, 15_GiB, {0, 1}, 2).wish));
  EXPECT_FALSE(cards_for(kTwoCards, waiter(1, 1_GiB, {7}).wish))
      << "a card of which nothing is known";
}

TEST(Queue, AnEarlierWaiterThatFitsKeepsItsRoom) {
  const Rooms left = left_by_earlier(kTwoCards, {waiter(3, 15_GiB, {0, 1})}, kNobody, {});
  EXPECT_EQ(left.at(uuid_of(1)), 5_GiB);
  EXPECT_EQ(left.at(uuid_of(0)), 10_GiB);
}

TEST(Queue, ALaterWaiterBlocksNoOther) {
  const Queue line{waiter(2, 1_GiB, {0}), waiter(3, 15_GiB, {0, 1})};
  EXPECT_EQ(left_by_earlier(kTwoCards, line, "2", {}), kTwoCards);
}

TEST(Queue, AWaiterThatDoesNotFitMayBePassedEightTimes) {
  const Queue big{waiter(3, 22_GiB, {0, 1}, 2)};
  EXPECT_EQ(left_by_earlier(kTwoCards, big, kNobody, grants(7, 4, 1)), kTwoCards);
  EXPECT_TRUE(left_by_earlier(kTwoCards, big, kNobody, grants(8, 4, 1)).empty());
}

TEST(Queue, OnlyLaterTicketsOnTheSameCardsArePasses) {
  const Waiter big = waiter(30, 22_GiB, {0});
  EXPECT_EQ(passes(big, grants(10, 1, 0)), 0) << "they had asked before";
  EXPECT_EQ(passes(big, grants(10, 31, 1)), 0) << "another card";
  EXPECT_EQ(passes(big, grants(10, 31, 0)), 10);
}

TEST(Queue, OnlyTheCardsOfAnOftenPassedWaiterAreKept) {
  const Rooms left = left_by_earlier(kTwoCards, {waiter(3, 22_GiB, {0})}, kNobody, grants(8, 4, 0));
  EXPECT_EQ(left, (Rooms{{uuid_of(1), 20_GiB}}));
}

TEST(Queue, AWaiterThatDoesNotLookBlocksNoOther) {
  Waiter stopped = waiter(3, 15_GiB, {0, 1});
  stopped.looking = false;
  EXPECT_EQ(left_by_earlier(kTwoCards, {stopped}, kNobody, grants(20, 4, 1)), kTwoCards);
}

TEST(Queue, SeveralEarlierWaitersAreServedInTheirOrder) {
  const Queue line = in_order({waiter(4, 8_GiB, {0, 1}), waiter(3, 15_GiB, {0, 1})});
  const Rooms left = left_by_earlier(kTwoCards, line, kNobody, {});
  EXPECT_EQ(left.at(uuid_of(1)), 5_GiB) << "the first is on the roomiest card";
  EXPECT_EQ(left.at(uuid_of(0)), 2_GiB) << "the second on what is left";
}

// ---- Which cards are kept ----

// After eight passes a job for two cards once held up all eight.
TEST(KeptCards, AreAsManyAsWantedAndTheNearest) {
  const Rooms four{
      {uuid_of(0), 4_GiB}, {uuid_of(1), 18_GiB}, {uuid_of(2), 9_GiB}, {uuid_of(3), 12_GiB}};
  const Queue gang{waiter(3, 20_GiB, {0, 1, 2, 3}, 2)};
  EXPECT_EQ(left_by_earlier(four, gang, kNobody, grants(8, 4, 2)),
            (Rooms{{uuid_of(0), 4_GiB}, {uuid_of(2), 9_GiB}}));
}

TEST(KeptCards, IncreaseByOneAfterEachEightPasses) {
  Rooms rooms;
  for (int i = 0; i < 6; ++i) rooms[uuid_of(i)] = Bytes{(1_GiB).count * (i + 1)};
  const Queue gang{waiter(3, 20_GiB, {0, 1, 2, 3, 4, 5}, 2)};
  const auto left = [&](int passed) {
    return left_by_earlier(rooms, gang, kNobody, grants(passed, 4, 0)).size();
  };
  EXPECT_EQ(left(15), 4u);
  EXPECT_EQ(left(16), 3u);
  EXPECT_EQ(left(24), 2u);
  EXPECT_EQ(left(400), 0u);
}

TEST(KeptCards, AreAllIfTheWaiterWantsMore) {
  const Queue gang{waiter(3, 20_GiB, {0, 1, 7}, std::numeric_limits<int>::max())};
  EXPECT_TRUE(left_by_earlier(kTwoCards, gang, kNobody, grants(8, 4, 0)).empty());
}

TEST(KeptCards, DifferBetweenTwoWaiters) {
  const Rooms three{{uuid_of(0), 4_GiB}, {uuid_of(1), 18_GiB}, {uuid_of(2), 9_GiB}};
  const Queue line{waiter(3, 20_GiB, {0, 1, 2}), waiter(4, 19_GiB, {0, 1, 2})};
  EXPECT_EQ(left_by_earlier(three, line, kNobody, grants(8, 5, 1)), (Rooms{{uuid_of(0), 4_GiB}}));
}

// Cards of 24 GiB on which small jobs and strangers' programs come and go; later jobs take the
// memory that is left to them.
struct Churn {
  static constexpr int kCards = 4;
  struct Job {
    int card = 0, ends = 0;
    Bytes size;
  };

  [[nodiscard]] Rooms rooms() const {
    Rooms rooms;
    for (int card = 0; card < kCards; ++card) {
      rooms[uuid_of(card)] = 24_GiB - stranger[static_cast<std::size_t>(card)];
      for (const Job& job : jobs)
        if (job.card == card) rooms[uuid_of(card)] -= job.size;
    }
    return rooms;
  }
  // Every card that has room for it gets a job.
  void newcomers(const Queue& line, int now) {
    for (int card = 0; card < kCards; ++card) {
      const Wish small{.need = 3_GiB, .count = 1, .cards = {uuid_of(card)}};
      if (!cards_for(left_by_earlier(rooms(), line, kNobody, grants), small)) continue;
      jobs.push_back({.card = card, .ends = now + 5 + card, .size = 3_GiB});
      grants.push_back({.ticket = now, .at_ns = now, .id = "", .shares = {{uuid_of(card), 3_GiB}}});
    }
  }

  std::array<Bytes, kCards> stranger{};
  std::vector<Job> jobs;
  std::vector<Grant> grants;
};

// One of the nearest cards never fits the waiter, and the others change all the time: keeping only
// these cards would mean waiting forever.
TEST(KeptCards, PreventStarvationWhileTheUseOfTheCardsChanges) {
  constexpr int kFirst = 20;  // when it begins to wait
  for (const int count : {1, 2}) {
    Churn churn;
    churn.stranger[0] = 7_GiB;  // and is nearest as soon as the small jobs on it have ended
    const Queue line{waiter(kFirst, 18_GiB, {0, 1, 2, 3}, count)};
    const auto waits = [&](int now) {
      return now < kFirst || !cards_for(churn.rooms(), line[0].wish);
    };
    int now = 0;
    for (; waits(now) && now < 10'000; ++now) {
      std::erase_if(churn.jobs, [&](const auto& job) { return job.ends <= now; });
      churn.stranger[1] = now / 3 % 2 == 0 ? 8_GiB : 1_GiB;
      churn.newcomers(now < kFirst ? Queue{} : line, now);
    }
    EXPECT_GT(now, kFirst) << count;
    EXPECT_LT(now, 10'000) << count;
    EXPECT_LE(passes(line[0], churn.grants), kMostPasses * (Churn::kCards - count + 1));
  }
}

// ---- The order of the line ----

Waiter born(Waiter waiter, int second) {
  waiter.born = WallTime(std::chrono::seconds(second));
  return waiter;
}

std::vector<std::string> ids(const Queue& line) {
  std::vector<std::string> found;
  for (const Waiter& waiter : line) found.push_back(waiter.id);
  return found;
}

using Ids = std::vector<std::string>;

TEST(Queue, IsInTheOrderOfTheTickets) {
  EXPECT_EQ(ids(in_order({waiter(7, 1_GiB, {}), waiter(5, 1_GiB, {}), waiter(6, 1_GiB, {})})),
            (Ids{"5", "6", "7"}));
}

// Any user may write "ticket":0 into a file, but only the kernel sets its creation time.
TEST(Queue, ASmallTicketInANewFileDoesNotHelp) {
  Waiter pusher = born(waiter(0, 1_GiB, {}), 300);
  const Queue line = in_order({pusher, born(waiter(5, 1_GiB, {}), 100),
                               born(waiter(6, 1_GiB, {}), 200), born(waiter(7, 1_GiB, {}), 400)});
  EXPECT_EQ(ids(line), (Ids{"5", "6", "0", "7"}));
  EXPECT_EQ(passes(line[2], grants(1, 5, 0)), 0) << "earlier waiters do not count as passing it";
}

TEST(Queue, IsInTheOrderOfCreationForEqualTickets) {
  Waiter first = born(waiter(kMostTicket, 1_GiB, {}), 100);
  Waiter second = born(waiter(kMostTicket, 1_GiB, {}), 200);
  first.id = "first";
  second.id = "second";
  EXPECT_EQ(ids(in_order({second, first})), (Ids{"first", "second"}));
  const Waiter last = waiter(kMostTicket, 1_GiB, {0});
  EXPECT_EQ(passes(last, grants(1, kMostTicket, 0)), 1)
      << "later waiters get the largest ticket, too";
}

TEST(Queue, SmallClockStepsAndMissingCreationTimesChangeNothing) {
  EXPECT_EQ(ids(in_order({born(waiter(5, 1_GiB, {}), 101), born(waiter(6, 1_GiB, {}), 100)})),
            (Ids{"5", "6"}));
  EXPECT_EQ(ids(in_order({waiter(5, 1_GiB, {}), born(waiter(6, 1_GiB, {}), 100)})),
            (Ids{"5", "6"}));
}

TEST(Queue, APositionCountsEarlierWaitersThatLook) {
  Queue line{waiter(1, 1_GiB, {}), waiter(2, 1_GiB, {}), waiter(3, 1_GiB, {})};
  line[0].looking = false;
  EXPECT_EQ(position(line, "2"), 1);
  EXPECT_EQ(position(line, "3"), 2);
  EXPECT_EQ(position(line, kNobody), 3);
}

}  // namespace
}  // namespace headroom::lease
