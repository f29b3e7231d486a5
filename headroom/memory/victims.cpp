#include "headroom/memory/victims.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace headroom::memory {
namespace {

using allocator::BlockInfo;
using allocator::SegmentInfo;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr double kNever = std::numeric_limits<double>::infinity();

// Sizes as the caching allocator rounds them.
// Source: c10/cuda/CUDACachingAllocator.cpp, round_size, get_allocation_size and ExpandableSegment.
struct Rounded {
  explicit Rounded(const CardNow& card, Bytes size)
      : block(std::max<std::int64_t>(512, (size.count + 511) / 512 * 512)),
        is_large(block > kMiB),
        is_expandable(std::any_of(card.segments.begin(), card.segments.end(),
                                  [](const SegmentInfo& one) { return one.is_expandable; })),
        page(!is_large ? 2 * kMiB : card.large_segment.count),
        segment(!is_large || (block < 10 * kMiB && !is_expandable)
                    ? page
                    : up_to(block, is_expandable ? page : 2 * kMiB)) {}
  static std::int64_t up_to(std::int64_t size, std::int64_t multiple) {
    return (size + multiple - 1) / multiple * multiple;
  }
  std::int64_t block;
  bool is_large, is_expandable;
  std::int64_t page;     // of an expandable segment
  std::int64_t segment;  // a new one, or the new pages
};

// A block of a segment: free, movable at a price, or neither.
struct Place {
  std::int64_t size = 0;
  double price = 0;
  std::optional<std::size_t> item;
};

class Choice {
 public:
  Choice(const CardNow& card, const std::vector<Movable>& movable, const WantedBlock& wanted)
      : card_(card), movable_(movable), wanted_(wanted), rounded_(card, wanted.size) {
    for (std::size_t i = 0; i < movable.size(); ++i) by_address_.emplace(movable[i].address, i);
    set_prices();
  }

  std::optional<std::vector<std::size_t>> best() {
    for (const SegmentInfo& segment : card_.segments) {
      if (segment.pool != 0) continue;
      places_.clear();
      for (const BlockInfo& block : segment.blocks) places_.push_back(place(block));
      if (segment.is_large == rounded_.is_large && segment.stream == wanted_.stream) stretches();
      parts(segment);
    }
    new_segment();
    if (price_ == kNever) return std::nullopt;
    return items_;
  }

 private:
  struct Part {
    std::int64_t size = 0;
    std::vector<std::size_t> items;
  };

  // A byte costs one; a quarter more if it is needed first.
  void set_prices() {
    std::vector<std::size_t> order(movable_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      return movable_[one].needed > movable_[other].needed;
    });
    prices_.resize(movable_.size());
    for (std::size_t rank = 0; rank < order.size(); ++rank)
      prices_[order[rank]] =
          static_cast<double>(movable_[order[rank]].size.count) *
          (1 + 0.25 * static_cast<double>(rank) / static_cast<double>(order.size()));
  }

  [[nodiscard]] Place place(const BlockInfo& block) const {
    if (block.state == BlockInfo::State::free)
      return {.size = block.size.count, .price = 0, .item = {}};
    const auto found = by_address_.find(block.address);
    if (block.state != BlockInfo::State::allocated || found == by_address_.end())
      return {.size = block.size.count, .price = kNever, .item = {}};
    return {.size = block.size.count, .price = prices_[found->second], .item = found->second};
  }

  // The cheapest neighbours that are large enough together.
  void stretches() {
    std::size_t first = 0;
    std::int64_t size = 0;
    double price = 0;
    for (std::size_t last = 0; last < places_.size(); ++last) {
      if (places_[last].price == kNever) {
        first = last + 1;
        size = 0;
        price = 0;
        continue;
      }
      size += places_[last].size;
      price += places_[last].price;
      while (size - places_[first].size >= rounded_.block) {
        size -= places_[first].size;
        price -= places_[first].price;
        ++first;
      }
      if (size >= rounded_.block && price < price_) take(first, last, price);
    }
  }

  void take(std::size_t first, std::size_t last, double price) {
    price_ = std::max(price, 0.0);
    items_.clear();
    for (std::size_t i = first; i <= last; ++i)
      if (places_[i].item) items_.push_back(*places_[i].item);
  }

  // What can go back to the driver: all of a segment, or each page of an expandable one.
  void parts(const SegmentInfo& segment) {
    const std::int64_t page = !segment.is_expandable ? segment.size.count
                              : segment.is_large     ? card_.large_segment.count
                                                     : 2 * kMiB;
    for (std::int64_t begin = 0; begin + page <= segment.size.count; begin += page) {
      Part part{.size = page, .items = {}};
      bool may_go = true;
      std::int64_t at = 0;
      for (const Place& each : places_) {
        if (at < begin + page && at + each.size > begin) {
          may_go = may_go && each.price != kNever;
          if (each.item) part.items.push_back(*each.item);
        }
        at += each.size;
      }
      if (may_go) parts_.push_back(std::move(part));
    }
  }

  // Parts that go back to the driver until it has enough for a new segment: always the one that
  // costs least for its size. What lies in two of them leaves once.
  void new_segment() {
    std::set<std::size_t> items;
    const auto rest_of = [&](const Part& part) {
      double price = 0;
      for (const std::size_t item : part.items)
        if (!items.contains(item)) price += prices_[item];
      return price / static_cast<double>(part.size);
    };
    double price = 0;
    for (std::int64_t free = card_.free.count; free < rounded_.segment;) {
      if (parts_.empty()) return;
      const auto cheapest = std::min_element(
          parts_.begin(), parts_.end(),
          [&](const Part& one, const Part& other) { return rest_of(one) < rest_of(other); });
      free += cheapest->size;
      price += rest_of(*cheapest) * static_cast<double>(cheapest->size);
      items.insert(cheapest->items.begin(), cheapest->items.end());
      parts_.erase(cheapest);
    }
    if (price >= price_) return;
    price_ = price;
    items_.assign(items.begin(), items.end());
  }

  const CardNow& card_;
  const std::vector<Movable>& movable_;
  const WantedBlock wanted_;
  const Rounded rounded_;
  std::map<std::uint64_t, std::size_t> by_address_;
  std::vector<double> prices_;
  std::vector<Place> places_;  // of the segment that is looked at
  std::vector<Part> parts_;
  double price_ = kNever;
  std::vector<std::size_t> items_;
};

}  // namespace

std::optional<std::vector<std::size_t>> victims(const CardNow& card,
                                                const std::vector<Movable>& movable,
                                                const WantedBlock& wanted) {
  return Choice(card, movable, wanted).best();
}

}  // namespace headroom::memory
