#include "headroom/bench/memory_curve.h"

#include <algorithm>

#include "headroom/memory/memory_statistics.h"
#include "headroom/trace/event.h"

namespace headroom::bench {
namespace {

using trace::Event;
using trace::Kind;

// A step is drawn as so many stretches, each by its highest point.
constexpr std::uint64_t kStretches = 24;
// 25 MB. Of a step with more of them the first ones are missing in the curve.
constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 19;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  constexpr std::uint64_t kPrime = 1099511628211ULL;  // of FNV-1a
  for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((value >> shift) & 0xff)) * kPrime;
  return hash;
}

void follow(const Event& event, MemoryPoint& now) {
  switch (event.kind) {
    case Kind::alloc:
      now.requested += event.bytes;
      break;
    case Kind::free_requested:
      now.requested -= event.bytes;
      break;
    case Kind::segment_alloc:
    case Kind::segment_map:
      now.reserved += event.bytes;
      break;
    case Kind::segment_free:
    case Kind::segment_unmap:
      now.reserved -= event.bytes;
      break;
    default:
      break;
  }
}

}  // namespace

MemoryCurve::MemoryCurve(c10::Device device)
    : device_(device), recorder_(memory::recorder_of(device)) {
  if (recorder_ != nullptr) return;
  own_ = std::make_unique<trace::Recorder>(trace::RecorderOptions{.limit = kMostEvents});
  history_ = std::make_unique<memory::History>(device, *own_);
  recorder_ = own_.get();
}

void MemoryCurve::begin_step() {
  begun_ = recorder_->recorded();
  const memory::GpuMemoryStats now = memory::get_gpu_memory_stats(device_);
  now_.requested = now.requested;
  now_.reserved = now.reserved;
}

void MemoryCurve::end_step() {
  const std::uint64_t end = recorder_->recorded(), first = std::max(begun_, recorder_->dropped()),
                      count = end - first;
  const auto step = static_cast<double>(fingerprints_.size());
  std::uint64_t hash = 14695981039346656037ULL, stretch = 0;
  MemoryPoint highest = now_;
  for (std::uint64_t number = first; number < end; ++number) {
    const Event& event = recorder_->event(number);
    follow(event, now_);
    if (event.kind == Kind::alloc || event.kind == Kind::free_requested)
      hash = mixed(mixed(hash, static_cast<std::uint64_t>(event.kind)),
                   static_cast<std::uint64_t>(event.bytes.count));
    const double share = static_cast<double>(number + 1 - first) / static_cast<double>(count);
    if (now_.requested >= highest.requested) highest.at = step + share;
    highest.requested = std::max(highest.requested, now_.requested);
    highest.reserved = std::max(highest.reserved, now_.reserved);
    if ((number + 1 - first) * kStretches / count == stretch) continue;
    ++stretch;
    points_.push_back(highest);
    highest = now_;
    highest.at = step + share;
  }
  fingerprints_.push_back(hash);
}

bool MemoryCurve::repeats_itself() const {
  const std::size_t steps = fingerprints_.size();
  return steps >= 2 && fingerprints_[steps - 1] == fingerprints_[steps - 2];
}

}  // namespace headroom::bench
