#include "headroom/sim/device/stream_order.h"

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"

namespace headroom::sim::detail {
namespace {

bool includes(const StreamClock& clock, const StreamUse& use) {
  return use.time <= (use.stream < clock.size() ? clock[use.stream] : 0);
}

void join(StreamClock& clock, const StreamClock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

// Keeps the last use of each stream.
void add(StreamUses& uses, const StreamUse& use) {
  for (StreamUse& one : uses)
    if (one.stream == use.stream) {
      if (one.time < use.time) one = use;
      return;
    }
  uses.push_back(use);
}

}  // namespace

std::uint32_t StreamOrder::number_of(StreamOfCard stream) {
  const auto known = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const Stream& one) { return one.name == stream; });
  const auto number = static_cast<std::uint32_t>(known - streams_.begin());
  if (known == streams_.end()) {
    streams_.push_back({.name = stream, .seen = {}});
    streams_.back().seen.resize(streams_.size());
  }
  return number;
}

// Its next operator comes after all that the host has waited for.
std::uint32_t StreamOrder::up_to_date(StreamOfCard name) {
  const std::uint32_t number = number_of(name);
  Stream& stream = streams_[number];
  if (stream.host_seen != host_version_) join(stream.seen, host_);
  stream.host_seen = host_version_;
  return number;
}

// ---- Operators ----

std::uint64_t StreamOrder::launch(StreamOfCard stream, std::string_view operation,
                                  std::span<const Touch> touched) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t by = up_to_date(stream);
  const std::uint64_t time = ++streams_[by].seen[by];
  for (const Touch& one : touched) touch(*one.uses, one.writes, by, operation);
  return time;
}

void StreamOrder::results(StreamOfCard stream, std::string_view operation, std::uint64_t launched,
                          std::span<MemoryUses* const> made) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t by = up_to_date(stream);
  const auto is_of_this = [&](const StreamUse& use) {
    return use.stream == by && use.time >= launched;
  };
  for (MemoryUses* const uses : made)
    if (!is_of_this(uses->write) &&
        std::none_of(uses->reads.begin(), uses->reads.end(), is_of_this))
      touch(*uses, /*writes=*/true, by, operation);
}

void StreamOrder::touch(MemoryUses& uses, bool writes, std::uint32_t by,
                        std::string_view operation) {
  const StreamClock& seen = streams_[by].seen;
  for (const StreamUse& former : uses.former)
    if (!includes(seen, former)) refuse_reuse(former, uses.owner, by, operation);
  if (!includes(seen, uses.write)) refuse(uses.write, true, by, operation);
  const StreamUse now{.stream = by, .time = seen[by], .operation = operation};
  if (!writes) return add(uses.reads, now);
  for (const StreamUse& read : uses.reads)
    if (!includes(seen, read)) refuse(read, false, by, operation);
  uses.write = now;
  uses.reads.clear();
  uses.former.clear();
}

std::string StreamOrder::named(std::uint32_t stream) const {
  const auto [card, id] = streams_[stream].name;
  return (id == 0 ? "the default stream" : "stream " + std::to_string(id)) +
         " of sim:" + std::to_string(card);
}

void StreamOrder::refuse(const StreamUse& earlier, bool wrote, std::uint32_t by,
                         std::string_view operation) const {
  const std::string first = std::string(earlier.operation) + " on " + named(earlier.stream);
  throw libtorch::DeviceError(expectation(
      "sim",
      std::string(operation) + " on " + named(by) + " to wait for " + first + ", which " +
          (wrote ? "writes" : "reads") + " the same memory",
      "no wait between them",
      "an event recorded on " + named(earlier.stream) + " after " + std::string(earlier.operation) +
          ", and " + named(by) + " waiting for it before " + std::string(operation)));
}

void StreamOrder::refuse_reuse(const StreamUse& former, StreamOfCard owner, std::uint32_t by,
                               std::string_view operation) const {
  const bool is_owners = streams_[former.stream].name == owner;
  throw libtorch::DeviceError(expectation(
      "sim",
      std::string(operation) + " on " + named(by) + " to wait for " +
          std::string(former.operation) + " on " + named(former.stream) +
          ", which used the same memory for a tensor that has been freed",
      "no wait between them",
      is_owners
          ? "an event recorded on " + named(former.stream) +
                ", on which the new tensor was allocated, and " + named(by) + " waiting for it"
          : "record_stream(" + named(former.stream) +
                ") on the first tensor before it is freed, or a wait for " + named(former.stream)));
}

// ---- Waits ----

StreamClock StreamOrder::record(StreamOfCard stream) {
  const std::lock_guard lock(mutex_);
  return streams_[up_to_date(stream)].seen;
}

void StreamOrder::wait(StreamOfCard stream, const StreamClock& recorded) {
  const std::lock_guard lock(mutex_);
  join(streams_[number_of(stream)].seen, recorded);
}

void StreamOrder::synchronize(const StreamClock& recorded) {
  const std::lock_guard lock(mutex_);
  host_joins(recorded);
}

void StreamOrder::synchronize_card(int card) {
  const std::lock_guard lock(mutex_);
  for (const Stream& stream : streams_)
    if (stream.name.card == card) host_joins(stream.seen);
  forget_ended(card);
}

void StreamOrder::host_joins(const StreamClock& clock) {
  join(host_, clock);
  ++host_version_;
}

bool StreamOrder::host_knows(const StreamUse& use) const {
  return includes(host_, use);
}

// ---- Memory ----

void StreamOrder::allocated(MemoryUses& uses, StreamOfCard stream, std::uint64_t address,
                            std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  uses.owner = stream;
  uses.begin = address;
  uses.end = address + bytes;
  auto& left = left_[static_cast<std::size_t>(stream.card)];
  auto at = left.upper_bound(uses.begin);
  if (at != left.begin()) --at;  // it may reach into this memory
  while (at != left.end() && at->first < uses.end) {
    const std::uint64_t begin = at->first, end = at->second.end;
    if (end <= uses.begin) {
      ++at;
      continue;
    }
    for (const StreamUse& use : at->second.uses)
      if (!host_knows(use)) add(uses.former, use);
    // The parts before and after this memory stay.
    if (end > uses.end) left.emplace(uses.end, at->second);
    if (begin < uses.begin) {
      at->second.end = uses.begin;
      ++at;
    } else {
      at = left.erase(at);
    }
  }
}

void StreamOrder::record_stream(MemoryUses& uses, StreamOfCard stream) {
  if (stream == uses.owner) return;  // as CUDA's allocator does
  const std::lock_guard lock(mutex_);
  const std::uint32_t number = number_of(stream);
  if (std::find(uses.recorded.begin(), uses.recorded.end(), number) == uses.recorded.end())
    uses.recorded.push_back(number);
}

// The allocator keeps memory back until the recorded streams have done their present work.
void StreamOrder::freed(const MemoryUses& uses) {
  if (uses.end == 0) return;
  const std::lock_guard lock(mutex_);
  StreamClock waited_for = host_;
  for (const std::uint32_t stream : uses.recorded) join(waited_for, streams_[stream].seen);
  Left left{.end = uses.end, .uses = {}};
  const auto keep = [&](const StreamUse& use) {
    if (!includes(waited_for, use)) add(left.uses, use);
  };
  keep(uses.write);
  std::for_each(uses.reads.begin(), uses.reads.end(), keep);
  std::for_each(uses.former.begin(), uses.former.end(), keep);
  if (!left.uses.empty())
    left_[static_cast<std::size_t>(uses.owner.card)].insert_or_assign(uses.begin, std::move(left));
}

void StreamOrder::forget_ended(int card) {
  std::erase_if(left_[static_cast<std::size_t>(card)], [&](const auto& one) {
    const StreamUses& uses = one.second.uses;
    return std::all_of(uses.begin(), uses.end(),
                       [&](const StreamUse& use) { return host_knows(use); });
  });
}

}  // namespace headroom::sim::detail
