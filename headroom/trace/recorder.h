// Keeps events in memory as they happen, at the price of a lock and a copy of 48 bytes. Where in
// the model they happen is told by scopes, so that whoever sees the allocation need not know.
//
//   Recorder recorder({.limit = 1'000'000});
//   const Name attention = recorder.name("h.0.attn");
//   { const ModuleScope scope(recorder, attention); ... recorder.append(event); }
//   const auto trace = read_memory(recorder);
//
// Threads: everything may be called from any thread (allocators of several cards call at the same
// time, each under its own lock). Module and operation belong to the thread that opened the scope:
// autograd runs backward on threads of its own, and what the training thread is in says nothing
// about them; a hook that knows opens a scope there. Step and phase belong to the recorder and hold
// for all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/trace/event.h"
#include "headroom/trace/file_writer.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

struct RecorderOptions {
  // Only so many of the last events stay in memory; 0: all of them, 48 MB a million.
  std::uint64_t limit = 0;
};

class Recorder {
 public:
  explicit Recorder(const RecorderOptions& options = {});
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Takes a lock and a look into a table: ask once for a module, not at each call.
  Name name(std::string_view text);

  // Module, operation, step and phase that the event leaves open are filled in from the scopes.
  // Never throws for the file that is spilled to: see spill_error().
  void append(Event event);
  void mark(std::string_view text, std::int64_t time_ns = 0);

  // The step from here on; answers the one before.
  std::uint32_t set_step(std::uint32_t step) { return step_.exchange(step, relaxed); }
  [[nodiscard]] std::uint32_t step() const { return step_.load(relaxed); }
  [[nodiscard]] Phase phase() const { return phase_.load(relaxed); }

  // From here on each event is written to a file as well; every 65536th call takes as long as it
  // takes to compress and write a part (some ms). Throws WriteError when it cannot be begun.
  void spill_to(const std::filesystem::path& path, const About& about);
  // Writes what is left and closes. Throws what went wrong, also earlier.
  void end_spill();
  // "", or why writing stopped; recording in memory goes on.
  [[nodiscard]] std::string spill_error() const;

  [[nodiscard]] std::uint64_t recorded() const;  // all that ever came
  [[nodiscard]] std::uint64_t dropped() const;   // of these, no longer in memory

  // For reading back, while nothing is appended. `number` counts all that ever came; those that
  // were dropped cannot be asked for.
  [[nodiscard]] const Event& event(std::uint64_t number) const;
  [[nodiscard]] const Names& names() const { return names_; }

 private:
  friend class ModuleScope;
  friend class OperationScope;
  friend class PhaseScope;

  static constexpr auto relaxed = std::memory_order_relaxed;
  static constexpr std::uint64_t kChunk = std::uint64_t{1} << 14;

  void fill_in(Event& event) const;
  void keep(const Event& event);
  void spill(const Event& event);

  mutable std::mutex mutex_;
  std::atomic<std::uint32_t> step_{0};
  std::atomic<Phase> phase_{Phase::unknown};
  const std::uint64_t limit_;
  const std::uint64_t most_chunks_;
  // Event n is in chunk n / kChunk; with a limit, chunks are used again from the first on.
  std::vector<std::vector<Event>> chunks_;
  std::uint64_t recorded_ = 0;
  Names names_;
  std::unique_ptr<TraceWriter> writer_;
  std::string spill_error_;
};

namespace detail {

// What the running thread is in, and by which recorder's numbers.
struct Whereabouts {
  const Recorder* recorder = nullptr;
  Name module = 0;
  Name operation = 0;
};
inline thread_local Whereabouts whereabouts;  // constant-initialised: costs no guard

}  // namespace detail

// The module that this thread's events belong to, until the scope ends. Scopes nest.
class ModuleScope {
 public:
  ModuleScope(const Recorder& recorder, Name module) : before_(detail::whereabouts) {
    const bool same = before_.recorder == &recorder;
    detail::whereabouts = {&recorder, module, same ? before_.operation : 0};
  }
  ~ModuleScope() { detail::whereabouts = before_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  detail::Whereabouts before_;
};

// The same for the operator.
class OperationScope {
 public:
  OperationScope(const Recorder& recorder, Name operation) : before_(detail::whereabouts) {
    const bool same = before_.recorder == &recorder;
    detail::whereabouts = {&recorder, same ? before_.module : 0, operation};
  }
  ~OperationScope() { detail::whereabouts = before_; }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  detail::Whereabouts before_;
};

// The phase of the recorder, for all threads.
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
