#include "headroom/cuda/loaded/recording.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/base/time.h"
#include "headroom/trace/recorder.h"

namespace headroom::cuda {
namespace {

namespace real = c10::cuda::CUDACachingAllocator;
using Entry = real::TraceEntry;
constexpr std::size_t kMostDevices = C10_COMPILE_TIME_MAX_GPUS;

std::array<std::atomic<trace::Recorder*>, kMostDevices> recorders{};

std::mutex mutex;  // guards the next
std::array<std::unordered_map<const void*, std::uint32_t>, kMostDevices> streams;

std::size_t slot(int device) {
  if (device < 0 || device >= static_cast<int>(kMostDevices))
    throw UsageError(expectation("cuda", "a card within the number that LibTorch supports",
                                 "cuda:" + std::to_string(device)));
  return static_cast<std::size_t>(device);
}

// Nothing for an entry that is not an allocator event: a snapshot; since 2.14, an annotation.
std::optional<trace::Kind> kind_of(Entry::Action action) {
  switch (action) {
    case Entry::ALLOC:
      return trace::Kind::alloc;
    case Entry::FREE_REQUESTED:
      return trace::Kind::free_requested;
    case Entry::FREE_COMPLETED:
      return trace::Kind::free_completed;
    case Entry::SEGMENT_ALLOC:
      return trace::Kind::segment_alloc;
    case Entry::SEGMENT_FREE:
      return trace::Kind::segment_free;
    case Entry::SEGMENT_MAP:
      return trace::Kind::segment_map;
    case Entry::SEGMENT_UNMAP:
      return trace::Kind::segment_unmap;
    case Entry::OOM:
      return trace::Kind::oom;
    default:
      break;
  }
  return {};
}

// Runs under the device's lock and takes the recorder's. That order is safe: no thread allocates
// while it holds a recorder's lock.
void tell(const Entry& entry) {
  trace::Recorder* const recorder = recorders[slot(entry.device_)].load(std::memory_order_acquire);
  const std::optional<trace::Kind> kind = kind_of(entry.action_);
  if (recorder == nullptr || !kind) return;
  trace::Event event;
  event.kind = *kind;
  event.time_ns = wall_time_ns();
  event.address = entry.addr_;
  event.bytes = Bytes{static_cast<std::int64_t>(entry.size_)};
  event.stream = stream_number(entry.device_, entry.stream_);
  event.device = static_cast<std::uint16_t>(entry.device_);
  recorder->append(event);
}

}  // namespace

std::uint32_t stream_number(int device, const void* stream) {
  if (stream == nullptr) return 0;
  const std::lock_guard lock(mutex);
  auto& known = streams[slot(device)];
  return known.try_emplace(stream, static_cast<std::uint32_t>(known.size() + 1)).first->second;
}

void record(int device, trace::Recorder* recorder) {
  static std::once_flag attached;  // forever; idle, it costs one table lookup
  if (recorder != nullptr)
    std::call_once(attached, [] { real::attachAllocatorTraceTracker(&tell); });
  recorders[slot(device)].store(recorder, std::memory_order_release);
}

}  // namespace headroom::cuda
