// Plays a trace on the allocator model: the memory it uses and the requests it is refused, with any
// settings and on any card.
//
//   const auto trace = open_trace("run.hrtrace");
//   const Replay result = replay(*trace, {.setup = {.capacity = 24_GiB}});
//   if (!result.card.refused.empty()) say(to_string(*result.card.first_refusal));
//
// A refused allocation is skipped and the trace continues. A real program would have ended there,
// so figures after the first refusal mean less.
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

// The card on which a trace is played.
struct CardSetup {
  // As PYTORCH_CUDA_ALLOC_CONF; std::nullopt: the trace's settings at its start, else PyTorch's
  // defaults. Changes of settings within the trace apply in any case.
  std::optional<std::string> settings = {};
  Bytes capacity = allocator::kUnlimited;
  // torch.cuda.set_per_process_memory_fraction; std::nullopt: the value in the settings.
  std::optional<double> fraction = {};
  // Stream events in a list of requests wait for its complete_events (in a history they always do).
  bool hold_events = false;
  allocator::AddressPolicy addresses = allocator::AddressPolicy::ascending;
  // The PyTorch whose allocator plays. By default the one that the trace names, or
  // allocator::default_version() if it names none.
  std::optional<allocator::Version> version = {};
};

// The state after the event that caused a peak.
struct Moment {
  std::uint64_t event = 0;  // counted from 0
  Bytes peak;               // the highest value of the figure
  Bytes allocated;          // after this event, as the next
  Bytes reserved;
};

// Throws UsageError if PyTorch would refuse the settings of the setup, InputError if it would
// refuse those of the trace.
[[nodiscard]] allocator::Version version_of(const CardSetup& setup, const About& about);
[[nodiscard]] allocator::Settings settings_at_start(const CardSetup& setup, const About& about);

// The result for one card.
struct CardReplay {
  std::string settings;  // at the start; "" for PyTorch's defaults
  allocator::Version version = allocator::default_version();
  Bytes capacity;
  double fraction = 1;
  allocator::Statistics statistics;
  std::vector<std::uint64_t> refused;  // numbers of the refused events
  std::optional<allocator::OutOfMemory> first_refusal;
  Moment reserved_peak;  // since the last reset of the peaks, as in the statistics
  Moment allocated_peak;
  std::uint64_t operations = 0;
  Seconds played{0};  // spent playing them, without reading and decoding
  // The trace meets a known fault of the real allocator (caching_allocator.h).
  bool met_fault_of_original = false;

  // Reserved but not allocated at the peak of reserved memory: the cost of fragmentation and
  // caching.
  [[nodiscard]] Bytes unused_at_peak() const {
    return reserved_peak.reserved - reserved_peak.allocated;
  }
  [[nodiscard]] double operations_per_second() const;
};

// Called before and after each event of the device; `number` counts all events from 0. In between,
// on() receives the allocator events that it causes on the card.
class Follower : public allocator::Observer {
 public:
  virtual void before(const Event& event, std::uint64_t number) = 0;
  virtual void after(const Event& event, const allocator::CachingAllocator& card) = 0;
  void on(const allocator::AllocatorEvent&) override {}
};

struct ReplayOptions {
  CardSetup setup = {};
  OperationsOptions operations = {};
  // Called after each batch of operations.
  std::function<void(const Reader&)> progress = {};
  std::stop_token cancel = {};  // ends early with the result so far
  Follower* follower = nullptr;
};

struct Replay {
  CardReplay card;
  std::vector<allocator::SegmentInfo> at_end;
  Noticed noticed;
};

// Throws InputError for a trace with impossible requests, UsageError for refused settings and for a
// device that the trace does not have.
[[nodiscard]] Replay replay(Reader& trace, const ReplayOptions& options = {});

// For a follower that queries the operations: they must be those of this trace, with keep_events.
[[nodiscard]] Replay replay(Reader& trace, Operations& operations, const ReplayOptions& options);

// Call after the end of a trace: throws UsageError if it names devices, but not the chosen one.
void check_device(const OperationsOptions& options, const Noticed& noticed);

// Plays a trace on one card, batch by batch: the part that replay and what_if share.
class CardPlayer {
 public:
  // `operations` knows the kind of trace and holds the texts of its settings.
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
