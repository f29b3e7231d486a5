#include "headroom/lease/queue.h"

#include <algorithm>

namespace headroom::lease {
namespace {

bool wants(const Wish& wish, const gpu::Uuid& card) {
  return std::find(wish.cards.begin(), wish.cards.end(), card) != wish.cards.end();
}

}  // namespace

std::optional<std::vector<gpu::Uuid>> place(const Rooms& rooms, const Wish& wish) {
  std::vector<std::pair<Bytes, gpu::Uuid>> fit;
  for (const gpu::Uuid& card : wish.cards)
    if (const auto room = rooms.find(card); room != rooms.end() && room->second >= wish.need)
      fit.emplace_back(room->second, card);
  const auto count = static_cast<std::size_t>(std::max(wish.count, 1));
  if (fit.size() < count) return {};
  std::stable_sort(fit.begin(), fit.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<gpu::Uuid> cards;
  for (std::size_t i = 0; i < count; ++i) cards.push_back(fit[i].second);
  return cards;
}

int passes(const Waiter& waiter, const std::vector<Grant>& grants) {
  return static_cast<int>(std::count_if(grants.begin(), grants.end(), [&](const Grant& grant) {
    return grant.ticket > waiter.ticket &&
           std::any_of(grant.shares.begin(), grant.shares.end(),
                       [&](const Share& share) { return wants(waiter.wish, share.card); });
  }));
}

Rooms left_by_earlier(Rooms rooms, long long ticket, const std::vector<Waiter>& waiting,
                      const std::vector<Grant>& grants) {
  std::vector<const Waiter*> earlier;
  for (const Waiter& waiter : waiting)
    if (waiter.ticket < ticket && waiter.looking) earlier.push_back(&waiter);
  std::sort(earlier.begin(), earlier.end(),
            [](const Waiter* a, const Waiter* b) { return a->ticket < b->ticket; });
  for (const Waiter* waiter : earlier) {
    if (const auto cards = place(rooms, waiter->wish)) {
      for (const gpu::Uuid& card : *cards) rooms[card] -= waiter->wish.need;
    } else if (passes(*waiter, grants) >= kMostPasses) {
      for (const gpu::Uuid& card : waiter->wish.cards) rooms.erase(card);
    }
  }
  return rooms;
}

}  // namespace headroom::lease
