// Plays a trace to the allocator's model: what it would have used, where it would have been
// refused, with the settings and on the card that one likes.
//
//   const auto trace = open_trace("run.hrtrace");
//   const Replay result = replay(*trace, {.setup = {.capacity = 24_GiB}});
//   if (!result.card.refused.empty()) say(to_string(*result.card.first_refusal));
//
// A refused request counts as not made, and the trace goes on: a real program would have ended
// there, so figures after the first refusal say less.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "headroom/allocator/operation.h"
#include "headroom/base/time.h"
#include "headroom/trace/operations.h"

namespace headroom::trace {

// On what a trace is played.
struct CardSetup {
  // As PYTORCH_CUDA_ALLOC_CONF; nothing: what the trace says it began with, else PyTorch's
  // defaults. What the trace changes later is changed in any case.
  std::optional<std::string> settings = {};
  Bytes capacity = allocator::kUnlimited;
  // torch.cuda.set_per_process_memory_fraction; nothing: what the settings say.
  std::optional<double> fraction = {};
  // Events of a list of requests wait for its complete_events (histories always do).
  bool hold_events = false;
  allocator::AddressPolicy addresses = allocator::AddressPolicy::ascending;
};

// The state after the event that made a peak.
struct Moment {
  std::uint64_t event = 0;  // its number, from 0
  Bytes peak;               // the figure that was never higher
  Bytes allocated;          // after this event
  Bytes reserved;
};

// Throws UsageError for settings of the setup that PyTorch 2.11 would refuse, InputError for those
// of the trace.
[[nodiscard]] allocator::Settings settings_at_start(const CardSetup& setup, const About& about);

// What came out for one card.
struct CardReplay {
  std::string settings;  // those at the start, "" for PyTorch's defaults
  Bytes capacity;
  double fraction = 1;
  allocator::Statistics statistics;
  std::vector<std::uint64_t> refused;  // numbers of the events
  std::optional<allocator::OutOfMemory> first_refusal;
  Moment reserved_peak;  // since the last reset of the peaks, as the statistics
  Moment allocated_peak;
  std::uint64_t operations = 0;
  Seconds played{0};  // spent on them, without reading and decoding
  // The real allocator has a fault that this trace would have met (caching_allocator.h).
  bool met_fault_of_original = false;

  // Reserved and not allocated when most was reserved: what fragmentation and caching cost.
  [[nodiscard]] Bytes unused_at_peak() const {
    return reserved_peak.reserved - reserved_peak.allocated;
  }
  [[nodiscard]] double operations_per_second() const;
};

// Sees each event of the device with what it did to the card; the card's own happenings, which
// on() is told of, lie between.
class Follower : public allocator::Observer {
 public:
  virtual void before(const Event& event) = 0;
  virtual void after(const Event& event, const allocator::CachingAllocator& card) = 0;
  void on(const allocator::Happening&) override {}
};

struct ReplayOptions {
  CardSetup setup = {};
  OperationsOptions operations = {};
  // After each part of the trace; from time to time.
  std::function<void(const Reader&)> progress = {};
  std::stop_token cancel = {};  // ends early, with what was played until then
  Follower* follower = nullptr;
};

struct Replay {
  CardReplay card;
  std::vector<allocator::SegmentInfo> at_end;
  Noticed noticed;
};

// Throws InputError for a trace that asks what cannot be done, UsageError for settings that are
// refused and a device that the trace does not have.
[[nodiscard]] Replay replay(Reader& trace, const ReplayOptions& options = {});

// For a follower that asks the operations: they must be those of this trace, and keep events.
[[nodiscard]] Replay replay(Reader& trace, Operations& operations, const ReplayOptions& options);

// After the end of a trace: throws UsageError if it does not have the device that was asked for.
void check_device(const OperationsOptions& options, const Noticed& noticed);

// One card that a trace is played to, batch by batch: the part that replay and what_if share.
class CardPlayer {
 public:
  // `operations` says what kind of trace it is, and has the texts of its settings.
  CardPlayer(const CardSetup& setup, const About& about, const Operations& operations,
             std::string name);

  void play(const Batch& batch, Follower* follower = nullptr);
  [[nodiscard]] const CardReplay& result();
  [[nodiscard]] allocator::CachingAllocator& card() { return player_.card(); }

 private:
  void play_one(const allocator::Operation& operation, std::uint64_t number);
  void change_settings(std::uint32_t text);
  void note_peaks(std::uint64_t number);

  const Operations* operations_;
  std::string name_;
  allocator::Player player_;
  CardReplay result_;
};

}  // namespace headroom::trace
