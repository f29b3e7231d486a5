// A trace as a picture needs it: every tensor with its life, and the card after each event that
// changed its memory. A replay on the allocator model makes it, so it has blocks, segments and
// addresses for any trace.
//
//   const auto trace = open_trace("run.hrtrace");
//   const Timeline timeline = timeline_of(*trace);
//   const Bytes peak = timeline.allocated[timeline.peak];
//
// An *instant* is the state after such an event; instants count from 0. A tensor lives at the
// instants [born, died). At each instant the living tensors' blocks add up to `allocated`.
//
// Memory: 40 bytes for a tensor, 100 more while it lives, and 32 for an instant: 10 million events
// take about 0.5 GB.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/trace/replay.h"

namespace headroom::page {

using Instant = std::uint32_t;

// The origin that many tensors share.
struct Origin {
  trace::Category category = trace::Category::unknown;
  trace::Name module = 0, operation = 0, line = 0;
  bool operator==(const Origin&) const = default;
};

struct TensorLife {
  Instant born = 0;
  Instant died = 0;           // the number of instants: it lives to the end
  Bytes bytes;                // as requested
  Bytes block;                // size of its block, after rounding
  std::uint64_t address = 0;  // in the replay
  std::uint32_t origin = 0;   // index into Timeline::origins
};

// A request that did not fit.
struct Refusal {
  Instant instant = 0;
  Bytes asked;
  std::optional<Bytes> free;  // on the card; std::nullopt if unknown
  // By the recorded program; otherwise by the card of this replay.
  bool recorded = false;
};

struct Timeline {
  trace::About about;
  trace::Names names;
  std::optional<std::uint16_t> device;
  std::uint64_t events = 0;  // of this device, in the trace
  std::vector<Origin> origins;
  std::vector<TensorLife> tensors;  // by birth

  // thinning.h: some instants are left out, and `left_out` tensors that lived only between them;
  // `merged` tensors are part of another's entry.
  bool is_thinned = false;
  std::uint64_t left_out = 0, merged = 0;

  // For each instant: the number of its event in the trace, its time, and the card's memory.
  std::vector<std::uint64_t> event_numbers;
  std::vector<std::int64_t> times_ns;
  std::vector<Bytes> allocated, reserved;
  // The first instant of the highest `allocated` and `reserved`.
  Instant peak = 0, reserved_peak = 0;

  // Each lasts from its instant to the next one's.
  std::vector<std::pair<Instant, trace::Phase>> phases;
  std::vector<std::pair<Instant, std::uint32_t>> steps;
  std::vector<std::pair<Instant, std::string>> marks;
  std::vector<Refusal> refusals;
  std::vector<allocator::SegmentInfo> segments_at_peak;  // by address
  trace::CardReplay card;
  trace::Noticed noticed;

  [[nodiscard]] Instant instants() const { return static_cast<Instant>(allocated.size()); }
};

// In a trace that records phases, a tensor of unknown category is given the one that its life
// shows: what is made in forward and freed in backward is an activation. Replays on the recorded
// card, if the trace records its capacity, unless options.setup.capacity sets one. Ignores
// options.follower. Throws the exceptions of replay().
[[nodiscard]] Timeline timeline_of(trace::Reader& trace, const trace::ReplayOptions& options = {});

// The indices of the tensors that live at an instant, by birth.
[[nodiscard]] std::vector<std::uint32_t> living_at(const Timeline& timeline, Instant instant);
// The first instant of the highest `allocated` in a step; std::nullopt if no instant belongs to it.
[[nodiscard]] std::optional<Instant> peak_of_step(const Timeline& timeline, std::uint32_t step);
// The phase and the step at an instant.
[[nodiscard]] trace::Phase phase_at(const Timeline& timeline, Instant instant);
[[nodiscard]] std::uint32_t step_at(const Timeline& timeline, Instant instant);

}  // namespace headroom::page
