// Records events in memory as they happen, at the cost of a lock and a copy of 48 bytes. Scopes
// record where in the model an event happens, so that the code that sees the allocation need not
// know it.
//
//   Recorder recorder({.limit = 1'000'000});
//   const Name attention = recorder.name("h.0.attn");
//   { const ModuleScope scope(recorder, attention); ... recorder.append(event); }
//   const auto trace = read_memory(recorder);
//
// Threads: any thread may call any function (the allocators of several cards call at the same time,
// each under its own lock). Module and operation belong to the thread that opened the scope
// (where.h), step and phase to the recorder: they apply to all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "headroom/trace/event.h"
#include "headroom/trace/where.h"

namespace headroom::trace {

struct RecorderOptions {
  // The number of latest events that stay in memory; 0: all. A million events take 48 MB.
  std::uint64_t limit = 0;
};

class Recorder {
 public:
  explicit Recorder(const RecorderOptions& options = {});
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Takes a lock and a table look-up: ask once per module, not at each call.
  Name name(std::string_view text);

  // Fills in module, operation, step and phase from the scopes if the event leaves them open.
  void append(Event event);
  void mark(std::string_view text, std::int64_t time_ns = 0);

  // Sets the step for later events; returns the previous one.
  std::uint32_t set_step(std::uint32_t step) { return step_.exchange(step, relaxed); }
  [[nodiscard]] std::uint32_t step() const { return step_.load(relaxed); }
  [[nodiscard]] Phase phase() const { return phase_.load(relaxed); }

  [[nodiscard]] std::uint64_t recorded() const;  // since the start
  [[nodiscard]] std::uint64_t dropped() const;   // of these, no longer in memory

  // For reading back while nothing is appended. `number` counts all recorded events; a dropped one
  // throws InternalError.
  [[nodiscard]] const Event& event(std::uint64_t number) const;
  [[nodiscard]] const Names& names() const { return names_; }

 private:
  friend class PhaseScope;

  static constexpr auto relaxed = std::memory_order_relaxed;
  static constexpr std::uint64_t kChunk = std::uint64_t{1} << 14;

  [[nodiscard]] Name operation_here();
  void keep(const Event& event);

  mutable std::mutex mutex_;
  std::atomic<std::uint32_t> step_{0};
  std::atomic<Phase> phase_{Phase::unknown};
  const std::uint64_t limit_;
  const std::uint64_t most_chunks_;
  // Event n is in chunk n / kChunk; with a limit, chunks are reused as a ring.
  std::vector<std::vector<Event>> chunks_;
  std::uint64_t recorded_ = 0;
  Names names_;
};

// Sets the recorder's phase, for all threads, until the scope ends.
class PhaseScope {
 public:
  PhaseScope(Recorder& recorder, Phase phase)
      : recorder_(recorder), before_(recorder.phase_.exchange(phase, Recorder::relaxed)) {}
  ~PhaseScope() { recorder_.phase_.store(before_, Recorder::relaxed); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Recorder& recorder_;
  Phase before_;
};

}  // namespace headroom::trace
