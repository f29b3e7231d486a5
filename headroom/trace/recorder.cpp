#include "headroom/trace/recorder.h"

#include <string>

#include "headroom/base/error.h"

namespace headroom::trace {

// One chunk more than the limit fills, so that no event within the limit is in the chunk being
// overwritten.
Recorder::Recorder(const RecorderOptions& options)
    : limit_(options.limit), most_chunks_((options.limit + kChunk - 1) / kChunk + 1) {}

Name Recorder::name(std::string_view text) {
  const std::lock_guard lock(mutex_);
  return names_.number(text);
}

void Recorder::append(Event event) {
  if (event.step == 0) event.step = step_.load(relaxed);
  if (event.phase == Phase::unknown) event.phase = phase_.load(relaxed);
  if (event.module == 0 && here.recorder == this) event.module = here.module;
  const std::lock_guard lock(mutex_);
  if (event.operation == 0 && !has_text(event.kind)) event.operation = operation_here();
  keep(event);
}

void Recorder::mark(std::string_view text, std::int64_t time_ns) {
  Event event;
  event.kind = Kind::mark;
  event.time_ns = time_ns;
  event.operation = name(text);
  append(event);
}

Name Recorder::operation_here() {
  if (here.operation.empty()) return 0;
  if (here.overload.empty()) return names_.number(here.operation);
  return names_.number(std::string(here.operation).append(".").append(here.overload));
}

void Recorder::keep(const Event& event) {
  const std::uint64_t number = recorded_ / kChunk;
  const std::uint64_t slot = limit_ == 0 ? number : number % most_chunks_;
  if (recorded_ % kChunk == 0) {
    if (slot == chunks_.size()) chunks_.emplace_back().reserve(kChunk);
    chunks_[slot].clear();
  }
  chunks_[slot].push_back(event);
  ++recorded_;
}

std::uint64_t Recorder::recorded() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

std::uint64_t Recorder::dropped() const {
  const std::uint64_t all = recorded();
  return limit_ == 0 || all <= limit_ ? 0 : all - limit_;
}

const Event& Recorder::event(std::uint64_t number) const {
  if (number >= recorded() || number < dropped())
    throw InternalError(expectation("trace", "an event that is in memory", std::to_string(number)));
  const std::uint64_t chunk = number / kChunk;
  return chunks_[limit_ == 0 ? chunk : chunk % most_chunks_][number % kChunk];
}

}  // namespace headroom::trace
