#include "headroom/lease/queue.h"

#include <algorithm>
#include <tuple>

namespace headroom::lease {
namespace {

// Creation times are on the wall clock, which may be set by small steps.
constexpr Seconds kClockSteps{1.0};

bool wants(const Wish& wish, const gpu::Uuid& card) {
  return std::find(wish.cards.begin(), wish.cards.end(), card) != wish.cards.end();
}

std::size_t wanted_cards(const Wish& wish) {
  return static_cast<std::size_t>(std::max(wish.count, 1));
}

// The wish's cards that have rooms, roomiest first, else in the listed order.
std::vector<gpu::Uuid> nearest_first(const Rooms& rooms, const Wish& wish) {
  std::vector<gpu::Uuid> cards;
  for (const gpu::Uuid& card : wish.cards)
    if (rooms.contains(card) && std::find(cards.begin(), cards.end(), card) == cards.end())
      cards.push_back(card);
  std::stable_sort(cards.begin(), cards.end(), [&](const gpu::Uuid& a, const gpu::Uuid& b) {
    return rooms.at(a) > rooms.at(b);
  });
  return cards;
}

// Removes that many of the wish's cards from the rooms of later waiters.
void keep(Rooms& rooms, const Wish& wish, std::size_t number) {
  const std::vector<gpu::Uuid> cards = nearest_first(rooms, wish);
  for (std::size_t i = 0; i < std::min(cards.size(), number); ++i) rooms.erase(cards[i]);
}

std::size_t kept_cards(const Waiter& waiter, int passed) {
  if (passed < kMostPasses) return 0;
  return wanted_cards(waiter.wish) + static_cast<std::size_t>(passed / kMostPasses - 1);
}

bool clearly_before(const Waiter& a, const Waiter& b) {
  return a.born && b.born && *a.born + kClockSteps < *b.born;
}

}  // namespace

Queue in_order(std::vector<Waiter> waiting) {
  std::vector<long long> tickets;
  for (const Waiter& waiter : waiting) {
    tickets.push_back(waiter.ticket);
    for (const Waiter& other : waiting)
      if (clearly_before(other, waiter)) tickets.back() = std::max(tickets.back(), other.ticket);
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) waiting[i].ticket = tickets[i];
  std::sort(waiting.begin(), waiting.end(), [](const Waiter& a, const Waiter& b) {
    return std::tie(a.ticket, a.born, a.id) < std::tie(b.ticket, b.born, b.id);
  });
  return waiting;
}

Queue::const_iterator spot_of(const Queue& queue, const std::string& id) {
  return std::find_if(queue.begin(), queue.end(), [&](const Waiter& w) { return w.id == id; });
}

int position(const Queue& queue, const std::string& id) {
  return 1 + static_cast<int>(std::count_if(queue.begin(), spot_of(queue, id),
                                            [](const Waiter& w) { return w.looking; }));
}

std::optional<std::vector<gpu::Uuid>> cards_for(const Rooms& rooms, const Wish& wish) {
  std::vector<gpu::Uuid> cards = nearest_first(rooms, wish);
  const std::size_t count = wanted_cards(wish);
  if (cards.size() < count || rooms.at(cards[count - 1]) < wish.need) return {};
  cards.resize(count);
  return cards;
}

int passes(const Waiter& waiter, const std::vector<Grant>& grants) {
  return static_cast<int>(std::count_if(grants.begin(), grants.end(), [&](const Grant& grant) {
    return grant.ticket >= waiter.ticket &&
           std::any_of(grant.shares.begin(), grant.shares.end(),
                       [&](const Share& share) { return wants(waiter.wish, share.card); });
  }));
}

Rooms left_by_earlier(Rooms rooms, const Queue& queue, const std::string& id,
                      const std::vector<Grant>& grants) {
  const auto own = spot_of(queue, id);
  for (auto waiter = queue.begin(); waiter != own; ++waiter) {
    if (!waiter->looking) continue;
    if (const auto cards = cards_for(rooms, waiter->wish)) {
      for (const gpu::Uuid& card : *cards) rooms[card] -= waiter->wish.need;
    } else {
      keep(rooms, waiter->wish, kept_cards(*waiter, passes(*waiter, grants)));
    }
  }
  return rooms;
}

}  // namespace headroom::lease
