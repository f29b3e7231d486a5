// Who goes first.

#include "headroom/lease/queue.h"

#include <gtest/gtest.h>

#include "tests/lease/fixtures/shared_card.h"

namespace headroom::lease {
namespace {

using namespace fixtures;

Waiter waiter(long long ticket, Bytes need, std::vector<int> cards, int count = 1) {
  Waiter waiter;
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

const Rooms kTwoCards{{uuid_of(0), 10_GiB}, {uuid_of(1), 20_GiB}};

TEST(Place, IsOnTheRoomiestCards) {
  EXPECT_EQ(place(kTwoCards, waiter(1, 5_GiB, {0, 1}).wish), std::vector{uuid_of(1)});
  EXPECT_EQ(place(kTwoCards, waiter(1, 5_GiB, {0}).wish), std::vector{uuid_of(0)});
}

TEST(Place, IsAllCardsOrNone) {
  EXPECT_EQ(place(kTwoCards, waiter(1, 5_GiB, {0, 1}, 2).wish),
            (std::vector{uuid_of(1), uuid_of(0)}));
  EXPECT_FALSE(place(kTwoCards, waiter(1, 15_GiB, {0, 1}, 2).wish));
  EXPECT_FALSE(place(kTwoCards, waiter(1, 1_GiB, {7}).wish)) << "a card of which nothing is known";
}

TEST(Queue, WhoCameFirstAndFitsKeepsItsRoom) {
  const Rooms left = left_by_earlier(kTwoCards, 5, {waiter(3, 15_GiB, {0, 1})}, {});
  EXPECT_EQ(left.at(uuid_of(1)), 5_GiB);
  EXPECT_EQ(left.at(uuid_of(0)), 10_GiB);
}

TEST(Queue, WhoCameLaterIsInNobodysWay) {
  EXPECT_EQ(left_by_earlier(kTwoCards, 2, {waiter(3, 15_GiB, {0, 1})}, {}), kTwoCards);
}

TEST(Queue, WhoDoesNotFitMayBePassedEightTimes) {
  const std::vector<Waiter> big{waiter(3, 22_GiB, {0, 1})};
  EXPECT_EQ(left_by_earlier(kTwoCards, 20, big, grants(7, 4, 1)), kTwoCards);
  EXPECT_TRUE(left_by_earlier(kTwoCards, 20, big, grants(8, 4, 1)).empty());
}

TEST(Queue, OnlyLaterTicketsOnTheSameCardsArePasses) {
  const Waiter big = waiter(30, 22_GiB, {0});
  EXPECT_EQ(passes(big, grants(10, 1, 0)), 0) << "they had asked before";
  EXPECT_EQ(passes(big, grants(10, 31, 1)), 0) << "another card";
  EXPECT_EQ(passes(big, grants(10, 31, 0)), 10);
}

TEST(Queue, CardsOfAWaiterThatWasPassedTooOftenAreLeftAloneAndNoOthers) {
  const Rooms left = left_by_earlier(kTwoCards, 20, {waiter(3, 22_GiB, {0})}, grants(8, 4, 0));
  EXPECT_EQ(left, (Rooms{{uuid_of(1), 20_GiB}}));
}

TEST(Queue, WhoDoesNotLookHoldsUpNobody) {
  Waiter stopped = waiter(3, 15_GiB, {0, 1});
  stopped.looking = false;
  EXPECT_EQ(left_by_earlier(kTwoCards, 5, {stopped}, grants(20, 4, 1)), kTwoCards);
}

TEST(Queue, SeveralBeforeUsAreServedInTheirOrder) {
  const std::vector<Waiter> line{waiter(4, 8_GiB, {0, 1}), waiter(3, 15_GiB, {0, 1})};
  const Rooms left = left_by_earlier(kTwoCards, 9, line, {});
  EXPECT_EQ(left.at(uuid_of(1)), 5_GiB) << "the first is on the roomiest card";
  EXPECT_EQ(left.at(uuid_of(0)), 2_GiB) << "the second on what is left";
}

}  // namespace
}  // namespace headroom::lease
