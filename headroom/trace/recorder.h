// Records events in memory as they happen, at the cost of a lock and a copy of 48 bytes. Scopes
// tell where in the model an event happens, so that the code that sees the allocation need not know
// it.
//
//   Recorder recorder({.limit = 1'000'000});
//   const Name attention = recorder.name("h.0.attn");
//   { const ModuleScope scope(recorder, attention); ... recorder.append(event); }
//   const auto trace = read_memory(recorder);
//
// Threads: any thread may call any function (the allocators of several cards call at the same time,
// each under its own lock). Module and operation belong to the thread that opened the scope,
// because autograd runs backward on its own threads, which the training thread's scopes do not
// describe. A hook that knows the module opens a scope on that thread. Step and phase belong to the
// recorder and apply to all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "headroom/trace/event.h"

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

  void fill_in(Event& event) const;
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

namespace detail {

// The scopes of the current thread, and the recorder whose names they use.
struct Whereabouts {
  const Recorder* recorder = nullptr;
  Name module = 0;
  Name operation = 0;
};
inline thread_local Whereabouts whereabouts;  // constant-initialised: access needs no guard

// Changes them until its end.
class WhereaboutsScope {
 public:
  WhereaboutsScope(const WhereaboutsScope&) = delete;
  WhereaboutsScope& operator=(const WhereaboutsScope&) = delete;

 protected:
  WhereaboutsScope(const Recorder& recorder, Name Whereabouts::*part, Name name)
      : before_(whereabouts) {
    if (before_.recorder != &recorder) whereabouts = {.recorder = &recorder};
    whereabouts.*part = name;
  }
  ~WhereaboutsScope() { whereabouts = before_; }

 private:
  Whereabouts before_;
};

}  // namespace detail

// Sets the module of this thread's events until the scope ends. Scopes nest.
class ModuleScope : detail::WhereaboutsScope {
 public:
  ModuleScope(const Recorder& recorder, Name module)
      : WhereaboutsScope(recorder, &detail::Whereabouts::module, module) {}
};

// The same for the operator.
class OperationScope : detail::WhereaboutsScope {
 public:
  OperationScope(const Recorder& recorder, Name operation)
      : WhereaboutsScope(recorder, &detail::Whereabouts::operation, operation) {}
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
