#include "tests/oracle/real_allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "headroom/base/error.h"
#include "headroom/cuda/loaded/asking_allocator.h"
#include "tests/oracle/fake_cuda/fake_cuda.h"

// libtorch_cuda calls it while it loads, and no header of c10 declares it: without it, a free after
// record_stream throws.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*function)(DeviceIndex));
}

namespace headroom::oracle {
namespace {

namespace real = c10::cuda::CUDACachingAllocator;
using allocator::Operation;
using allocator::SegmentInfo;
using allocator::Stat;
using allocator::StatByPool;
using allocator::Statistics;
using allocator::StreamId;
constexpr c10::DeviceIndex kDevice = 0;

fake_cuda::Addresses addresses(allocator::AddressPolicy policy) {
  switch (policy) {
    case allocator::AddressPolicy::ascending:
      return fake_cuda::Addresses::ascending;
    case allocator::AddressPolicy::descending:
      return fake_cuda::Addresses::descending;
    case allocator::AddressPolicy::lowest:
      return fake_cuda::Addresses::lowest;
  }
  throw std::logic_error("no such address policy");
}

c10::cuda::CUDAStream stream_of(StreamId number) {
  return c10::cuda::getStreamFromExternal(fake_cuda::stream_handle(number), kDevice);
}

c10::MempoolId_t pool_of(const Operation& operation) {
  return {0, static_cast<c10::CaptureId_t>(operation.bytes)};
}

Stat stat(const c10::CachingAllocator::Stat& from) {
  return {from.current, from.peak, from.allocated, from.freed};
}

StatByPool by_pool(const c10::CachingAllocator::StatArray& from) {
  using Type = c10::CachingAllocator::StatType;
  const auto of = [&](Type type) { return stat(from[static_cast<std::size_t>(type)]); };
  return {of(Type::AGGREGATE), of(Type::SMALL_POOL), of(Type::LARGE_POOL)};
}

// Since 2.12.
template <typename Stats>
std::int64_t oom_rejections(const Stats& from) {
  if constexpr (requires { from.num_oom_rejections; }) return from.num_oom_rejections;
  return 0;
}

allocator::BlockInfo block(const real::BlockInfo& from, std::uint64_t address, StreamId stream) {
  using State = allocator::BlockInfo::State;
  const State state = from.allocated ? State::allocated
                      : from.active  ? State::awaiting_free
                                     : State::free;
  const auto bytes = [](std::size_t n) { return Bytes{static_cast<std::int64_t>(n)}; };
  return {address, bytes(from.size), bytes(from.requested_size), stream, state};
}

SegmentInfo segment(const real::SegmentInfo& from) {
  SegmentInfo info{.address = from.address,
                   .size = Bytes{static_cast<std::int64_t>(from.total_size)},
                   .stream = fake_cuda::stream_number(from.stream),
                   .is_large = from.is_large,
                   .is_expandable = from.is_expandable,
                   .pool = from.owner_private_pool_id.second};
  std::uint64_t address = from.address;
  for (const real::BlockInfo& each : from.blocks) {
    info.blocks.push_back(block(each, address, info.stream));
    address += each.size;
  }
  return info;
}

// Where NVML is there, the text tells what this machine's processes hold; the model knows none.
std::string without_processes(std::string text) {
  for (const std::string begin : {" Including non-PyTorch memory, this process has ", " Process "})
    for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin)) {
      const std::string last = "memory in use.";
      text.erase(at, text.find(last, at) + last.size() - at);
    }
  return text;
}

}  // namespace

RealAllocator::RealAllocator(const Setup& setup, std::vector<std::string> settings_texts)
    : settings_texts_(std::move(settings_texts)) {
  static bool exists = false;
  if (std::exchange(exists, true))
    throw std::logic_error("a second RealAllocator in one process: fork first");
  fake_cuda::start({.capacity = static_cast<std::uint64_t>(setup.capacity.count),
                    .events = setup.events == allocator::EventRule::at_once
                                  ? fake_cuda::Events::when_recorded
                                  : fake_cuda::Events::when_told,
                    .addresses = addresses(setup.addresses)});
  ::setenv("PYTORCH_CUDA_ALLOC_CONF", setup.settings.c_str(), 1);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  // The default since 2.14 asks NVML about NVLink.
  real::CUDAAllocatorConfig::set_expandable_segments_handle_type(
      real::Expandable_Segments_Handle_Type::POSIX_FD);
  if (setup.asks)
    cuda::ask_before_refusing([](int, Bytes, std::uint32_t, int, c10::Error&) { return false; });
  real::init(1);
  if (setup.fraction) real::setMemoryFraction(*setup.fraction, kDevice);
}

bool RealAllocator::allocate(const Operation& operation) {
  if (operation.id >= pointers_.size()) pointers_.resize(operation.id + 1);
  void*& pointer = pointers_[operation.id];
  if (pointer != nullptr) throw std::logic_error("this id is live already");
  try {
    pointer = real::raw_alloc_with_stream(static_cast<std::size_t>(operation.bytes),
                                          fake_cuda::stream_handle(operation.stream));
    return true;
  } catch (const c10::OutOfMemoryError& refusal) {
    out_of_memory_text_ = without_processes(refusal.what_without_backtrace());
    return false;
  }
}

// The allocator takes only a DataPtr of its own; this one owns nothing.
void RealAllocator::record_stream(void* pointer, StreamId stream) {
  c10::DataPtr borrowed(pointer, pointer, real::get()->raw_deleter(),
                        c10::Device(c10::DeviceType::CUDA, kDevice));
  real::recordStream(borrowed, stream_of(stream));
  borrowed.release_context();
}

void RealAllocator::begin_pool(const Operation& operation) {
  try {
    real::beginAllocateToPool(kDevice, pool_of(operation), [](cudaStream_t) { return true; });
  } catch (const c10::Error& error) {
    throw UsageError(error.what_without_backtrace());
  }
}

bool RealAllocator::play(const Operation& operation) {
  using Kind = Operation::Kind;
  void* const pointer = operation.id < pointers_.size() ? pointers_[operation.id] : nullptr;
  switch (operation.kind) {
    case Kind::allocate:
      return allocate(operation);
    case Kind::free:
      if (pointer != nullptr) {
        pointers_[operation.id] = nullptr;
        real::raw_delete(pointer);
      }
      break;
    case Kind::record_stream:
      if (pointer != nullptr) record_stream(pointer, operation.stream);
      break;
    case Kind::complete_events:
      if (operation.stream == Operation::kAllStreams)
        fake_cuda::complete_all_events();
      else
        fake_cuda::complete_events(fake_cuda::stream_handle(operation.stream));
      break;
    case Kind::empty_cache:
      real::emptyCache();
      break;
    case Kind::reset_peaks:
      real::resetPeakStats(kDevice);
      break;
    case Kind::change_settings:
      c10::CachingAllocator::setAllocatorSettings(settings_texts_.at(operation.id));
      break;
    case Kind::begin_pool:
      begin_pool(operation);
      break;
    case Kind::end_pool:
      real::endAllocateToPool(kDevice, pool_of(operation));
      break;
    case Kind::release_pool:
      real::releasePool(kDevice, pool_of(operation));
      break;
    case Kind::nothing:
      break;
  }
  return true;
}

Statistics RealAllocator::statistics() const {
  const real::DeviceStats from = real::get()->getDeviceStats(kDevice);
  return {.allocation = by_pool(from.allocation),
          .segment = by_pool(from.segment),
          .active = by_pool(from.active),
          .inactive_split = by_pool(from.inactive_split),
          .allocated_bytes = by_pool(from.allocated_bytes),
          .reserved_bytes = by_pool(from.reserved_bytes),
          .active_bytes = by_pool(from.active_bytes),
          .inactive_split_bytes = by_pool(from.inactive_split_bytes),
          .requested_bytes = by_pool(from.requested_bytes),
          .num_alloc_retries = from.num_alloc_retries,
          .num_ooms = from.num_ooms,
          .num_sync_all_streams = from.num_sync_all_streams,
          .num_device_alloc = from.num_device_alloc,
          .num_device_free = from.num_device_free,
          .oversize_allocations = stat(from.oversize_allocations),
          .oversize_segments = stat(from.oversize_segments),
          .max_split_size = from.max_split_size,
          .num_oom_rejections = oom_rejections(from)};
}

std::vector<SegmentInfo> RealAllocator::snapshot() const {
  std::vector<SegmentInfo> segments;
  for (const real::SegmentInfo& each : real::snapshot({0, 0}, false).segments)
    segments.push_back(segment(each));
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return segments;
}

std::uint64_t RealAllocator::address_of(std::uint32_t id) const {
  return id < pointers_.size() ? reinterpret_cast<std::uint64_t>(pointers_[id]) : 0;
}

}  // namespace headroom::oracle
