#include "headroom/trace/operations.h"

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::trace {
namespace {

using allocator::Operation;
using OperationKind = Operation::Kind;

// The constructor reads a Headroom trace ahead to detect a history: this far beyond its first free,
// and at most the second number of events in total.
constexpr std::size_t kEventsAfterFirstFree = 4096;
constexpr std::size_t kMostEventsAhead = std::size_t{1} << 18;

}  // namespace

bool Noticed::takes(std::uint16_t of_event) {
  if (std::find(devices.begin(), devices.end(), of_event) == devices.end())
    devices.push_back(of_event);
  if (!device) device = of_event;
  return of_event == *device;
}

void Batch::clear() {
  operations.clear();
  numbers.clear();
  events.clear();
}

Operations::Operations(Reader& trace, OperationsOptions options)
    : trace_(trace), options_(std::move(options)) {
  noticed_.device = options_.device;
  stream_of(0);
  const Format format = trace.about().format;
  is_history_ = format == Format::pickle;
  if (format == Format::headroom) look_ahead();
}

void Operations::look_ahead() {
  std::size_t stop = kMostEventsAhead;
  bool freed = false;
  for (Numbered next; ahead_.size() < stop && read(next); ahead_.push_back(next)) {
    if (next.event.kind == Kind::free_requested && !std::exchange(freed, true))
      stop = std::min(stop, ahead_.size() + kEventsAfterFirstFree);
    if (next.event.kind == Kind::free_completed) is_history_ = true;
  }
}

bool Operations::next(Batch& batch, std::size_t count) {
  batch_ = &batch;
  const std::size_t wanted = batch.operations.size() + count, before = batch.operations.size();
  for (Numbered next; batch.operations.size() < wanted && take(next);) convert(next);
  return batch.operations.size() > before;
}

std::optional<std::uint32_t> Operations::stream_in_file(allocator::StreamId stream) const {
  return stream < in_file_.size() ? in_file_[stream] : std::nullopt;
}

// ---- Reading ----

bool Operations::read(Numbered& next) {
  if (ended_) return false;
  ended_ = !trace_.next(next.event);
  if (ended_) return false;
  next.number = noticed_.events++;
  return true;
}

bool Operations::take(Numbered& next) {
  if (peek() == nullptr) return false;
  next = ahead_.front();
  ahead_.pop_front();
  return true;
}

// The next event that will be taken. Drops the events before it at once: they may be the whole rest
// of a long trace.
const Event* Operations::peek() {
  while (true) {
    if (ahead_.empty()) {
      Numbered next;
      if (!read(next)) return nullptr;
      ahead_.push_back(next);
    }
    const Event& event = ahead_.front().event;
    if (has_text(event.kind) || noticed_.takes(event.device)) return &event;
    ahead_.pop_front();
    ++noticed_.of_other_devices;
  }
}

// ---- One event ----

void Operations::convert(const Numbered& next) {
  at_ = &next;
  const Event& event = next.event;
  const std::size_t before = batch_->operations.size();
  switch (event.kind) {
    case Kind::alloc:
      allocate(event);
      break;
    case Kind::free_requested:
      free(event);
      break;
    case Kind::free_completed:
      complete(event);
      break;
    case Kind::record_stream:
      if (!is_history_) record_stream(event);
      break;
    case Kind::complete_events:
      if (!is_history_)
        add({.stream =
                 event.stream == kAllStreams ? Operation::kAllStreams : stream_of(event.stream),
             .kind = OperationKind::complete_events});
      break;
    case Kind::empty_cache:
      add({.kind = OperationKind::empty_cache});
      break;
    case Kind::reset_peaks:
      add({.kind = OperationKind::reset_peaks});
      break;
    case Kind::settings:
      change_settings(event);
      break;
    case Kind::begin_pool:
    case Kind::end_pool:
    case Kind::release_pool:
      change_pool(event);
      break;
    case Kind::segment_alloc:
    case Kind::segment_free:
    case Kind::segment_map:
    case Kind::segment_unmap:
    case Kind::mark:
      break;
    case Kind::oom:
      note_refusal(next);
      break;
  }
  if (options_.keep_events && batch_->operations.size() == before) add({});
}

void Operations::allocate(const Event& event) {
  const auto [found, is_new] = live_.try_emplace(event.address);
  Id& id = found->second;
  if (!is_new && is_history_ && id) {
    ++noticed_.missing_frees;
    add({.id = *id, .kind = OperationKind::free});
  }
  if (const auto waiting = waiting_.find(event.address); waiting != waiting_.end())
    complete(event);  // the recording missed the completion
  // If a list allocates a live id again, the player decides: it accepts the id only if the earlier
  // allocation was refused.
  if (event.bytes <= Bytes{0}) return;
  if (!id) id = new_id();
  add({.bytes = event.bytes.count,
       .id = *id,
       .stream = stream_of(event.stream),
       .kind = OperationKind::allocate});
}

void Operations::free(const Event& event) {
  const auto found = live_.find(event.address);
  if (found == live_.end()) {
    if (!is_history_) mistake("the id of a live allocation", event);
    ++noticed_.unknown_frees;
    return;
  }
  const Id id = found->second;
  live_.erase(found);
  if (!id) return;
  const Event* after = is_history_ ? peek() : nullptr;
  const bool at_once =
      after == nullptr || (after->kind == Kind::free_completed && after->address == event.address);
  // While a private pool is open, PyTorch records no stream events, so none can complete.
  if (!at_once && open_pools_ == 0) {
    const allocator::StreamId helper = made_up_stream();
    waiting_[event.address] = helper;
    add({.id = *id, .stream = helper, .kind = OperationKind::record_stream});
  }
  add({.id = *id, .kind = OperationKind::free});
  free_ids_.push_back(*id);
}

void Operations::complete(const Event& event) {
  const auto found = waiting_.find(event.address);
  if (found == waiting_.end()) return;  // completed at once
  add({.stream = found->second, .kind = OperationKind::complete_events});
  idle_streams_.push_back(found->second);
  waiting_.erase(found);
}

void Operations::note_refusal(const Numbered& next) {
  if (noticed_.recorded_refusals++ > 0) return;
  const Bytes free{static_cast<std::int64_t>(next.event.address)};
  noticed_.first_recorded_refusal = {next.number, next.event.bytes, free};
}

void Operations::record_stream(const Event& event) {
  const auto found = live_.find(event.address);
  if (found == live_.end()) mistake("the id of a live allocation", event);
  if (!found->second) return;
  add({.id = *found->second,
       .stream = stream_of(event.stream),
       .kind = OperationKind::record_stream});
}

void Operations::change_settings(const Event& event) {
  const auto [found, is_new] =
      text_of_name_.try_emplace(event.operation, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.emplace_back(trace_.names().text(event.operation));
  add({.id = found->second, .kind = OperationKind::change_settings});
}

void Operations::change_pool(const Event& event) {
  const OperationKind kind = event.kind == Kind::begin_pool ? OperationKind::begin_pool
                             : event.kind == Kind::end_pool ? OperationKind::end_pool
                                                            : OperationKind::release_pool;
  if (kind == OperationKind::begin_pool) ++open_pools_;
  if (kind == OperationKind::end_pool && open_pools_ > 0) --open_pools_;
  add({.bytes = static_cast<std::int64_t>(event.address), .kind = kind});
}

// ---- Numbers ----

void Operations::add(const Operation& operation) {
  batch_->operations.push_back(operation);
  batch_->numbers.push_back(at_->number);
  if (options_.keep_events) batch_->events.push_back(at_->event);
}

std::uint32_t Operations::new_id() {
  if (free_ids_.empty()) return ids_++;
  const std::uint32_t id = free_ids_.back();
  free_ids_.pop_back();
  return id;
}

allocator::StreamId Operations::stream_of(std::uint32_t in_file) {
  if (in_file >= streams_.size()) streams_.resize(std::size_t{in_file} + 1);
  auto& stream = streams_[in_file];
  if (!stream) {
    stream = static_cast<allocator::StreamId>(in_file_.size());
    in_file_.emplace_back(in_file);
  }
  return *stream;
}

allocator::StreamId Operations::made_up_stream() {
  if (idle_streams_.empty()) {
    in_file_.emplace_back();
    return static_cast<allocator::StreamId>(in_file_.size() - 1);
  }
  const allocator::StreamId stream = idle_streams_.back();
  idle_streams_.pop_back();
  return stream;
}

void Operations::mistake(const char* expected, const Event& event) const {
  throw InputError("replay", options_.name + ", event " + std::to_string(at_->number) +
                                 ": expected " + expected + ", received '" +
                                 std::to_string(event.address) +
                                 "'; events are counted from 0, without comments");
}

}  // namespace headroom::trace
