#include "headroom/trace/detail/snapshot_start.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

namespace headroom::trace::pickle {
namespace {

std::uint64_t end_of(std::uint64_t address, Bytes size) {
  const auto count = static_cast<std::uint64_t>(size.count);
  return address > ~std::uint64_t{0} - count ? ~std::uint64_t{0} : address + count;
}

// Memory taken from the driver, as stretches that do not overlap.
class Reserved {
 public:
  void add(std::uint64_t begin, std::uint64_t end, std::int64_t stream, bool expandable) {
    remove(begin, end);
    if (begin < end) stretches_[begin] = {end, stream, expandable};
  }

  void remove(std::uint64_t begin, std::uint64_t end) {
    auto at = stretches_.upper_bound(begin);
    if (at != stretches_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != stretches_.end() && at->first < end) {
      const auto [first, stretch] = *at;
      at = stretches_.erase(at);
      if (first < begin) stretches_[first] = {begin, stretch.stream, stretch.expandable};
      if (stretch.end > end) stretches_[end] = stretch;
    }
  }

  void list(std::vector<StartEvent>& events) const {
    for (const auto& [begin, stretch] : stretches_)
      events.push_back({.kind = stretch.expandable ? Kind::segment_map : Kind::segment_alloc,
                        .address = begin,
                        .bytes = Bytes{static_cast<std::int64_t>(stretch.end - begin)},
                        .stream = stretch.stream,
                        .frames = {}});
  }

 private:
  struct Stretch {
    std::uint64_t end = 0;
    std::int64_t stream = 0;
    bool expandable = false;
  };
  std::map<std::uint64_t, Stretch> stretches_;
};

// Reads the entries of one device and finds the blocks and segments that existed before them.
class Finder {
 public:
  void see(const Entry& entry) {
    start_.has_times = start_.has_times || entry.time_us != 0;
    switch (entry.kind) {
      case Kind::alloc:
        state_[entry.address] = State::live;
        break;
      case Kind::free_requested:
        start_.has_free_requested = true;
        if (state_.try_emplace(entry.address, State::waiting).second) was_there(entry);
        state_[entry.address] = State::waiting;
        break;
      case Kind::free_completed:
        start_.has_free_completed = true;
        if (state_.try_emplace(entry.address, State::gone).second) unfinished_.push_back(entry);
        state_[entry.address] = State::gone;
        break;
      case Kind::segment_alloc:
      case Kind::segment_free:
      case Kind::segment_map:
      case Kind::segment_unmap:
        segment_entries_.push_back(entry);
        break;
      default:
        break;
    }
  }

  // A block of the final state that no entry names has existed all the time.
  void see(const SnapshotSegment& segment, const SnapshotBlock& block) {
    if (!block.active || state_.contains(block.address)) return;
    add_block(block.address, block.requested, segment.stream, block.frames);
    if (block.awaiting_free) add_free(block.address, block.requested, segment.stream);
  }

  void see(const SnapshotSegment& segment) {
    reserved_.add(segment.address, end_of(segment.address, segment.size), segment.stream,
                  segment.expandable);
  }

  Start take() {
    // In a recording without requests of frees, the completion stands for the whole free.
    for (const Entry& entry : unfinished_) {
      was_there(entry);
      if (start_.has_free_requested) add_free(entry.address, entry.bytes, entry.stream);
    }
    undo_segment_entries();
    const auto by_address = [](const StartEvent& a, const StartEvent& b) {
      return a.address < b.address;
    };
    std::sort(blocks_.begin(), blocks_.end(), by_address);
    std::sort(frees_.begin(), frees_.end(), by_address);
    reserved_.list(start_.events);
    start_.events.insert(start_.events.end(), blocks_.begin(), blocks_.end());
    start_.events.insert(start_.events.end(), frees_.begin(), frees_.end());
    return std::move(start_);
  }

 private:
  enum class State : std::uint8_t { live, waiting, gone };

  // A block that is freed existed before; its stack is unknown.
  void was_there(const Entry& entry) { add_block(entry.address, entry.bytes, entry.stream, {}); }
  void add_block(std::uint64_t address, Bytes bytes, std::int64_t stream, Value frames) {
    blocks_.push_back({Kind::alloc, address, bytes, stream, frames});
  }
  void add_free(std::uint64_t address, Bytes bytes, std::int64_t stream) {
    frees_.push_back({Kind::free_requested, address, bytes, stream, {}});
  }

  void undo_segment_entries() {
    std::for_each(segment_entries_.rbegin(), segment_entries_.rend(), [&](const Entry& entry) {
      const std::uint64_t end = end_of(entry.address, entry.bytes);
      if (entry.kind == Kind::segment_alloc || entry.kind == Kind::segment_map)
        reserved_.remove(entry.address, end);
      else
        reserved_.add(entry.address, end, entry.stream, entry.kind == Kind::segment_unmap);
    });
  }

  Start start_;
  std::unordered_map<std::uint64_t, State> state_;
  std::vector<Entry> unfinished_;
  std::vector<Entry> segment_entries_;
  std::vector<StartEvent> blocks_;
  std::vector<StartEvent> frees_;
  Reserved reserved_;
};

}  // namespace

Start start_of(const SnapshotTree& snapshot, std::size_t device) {
  Finder finder;
  if (device < snapshot.traces().size()) {
    Value dict;
    for (Items items = snapshot.tree().items(snapshot.traces()[device]); items.next(dict);)
      finder.see(snapshot.entry(dict));
  }
  for (const SnapshotSegment& segment : snapshot.segments()) {
    if (segment.device != device) continue;
    finder.see(segment);
    for (const SnapshotBlock& block : snapshot.blocks(segment)) finder.see(segment, block);
  }
  return finder.take();
}

}  // namespace headroom::trace::pickle
