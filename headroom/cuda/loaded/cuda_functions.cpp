#include "headroom/cuda/cuda_functions.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <dlfcn.h>

#include <algorithm>
#include <mutex>

#include "headroom/base/error.h"
#include "headroom/cuda/loaded/asking_allocator.h"
#include "headroom/cuda/loaded/recording.h"

namespace headroom::cuda {
namespace {

namespace real = c10::cuda::CUDACachingAllocator;

// The allocator needs the number of cards before its first use; repeated calls are harmless.
void prepare() {
  static std::once_flag once;
  std::call_once(once, [] { real::init(c10::cuda::device_count()); });
}

c10::DeviceIndex checked(int device) {
  const int count = c10::cuda::device_count();
  if (device < 0 || device >= count)
    throw UsageError(expectation("cuda", std::to_string(count) + " cards from cuda:0 on",
                                 "cuda:" + std::to_string(device), ""));
  prepare();
  return static_cast<c10::DeviceIndex>(device);
}

std::string why_absent() {
  return c10::cuda::device_count() > 0 ? "" : "the driver has no card that this process may use";
}

std::pair<Bytes, Bytes> memory_info(int device) {
  const auto [free, total] = real::get()->getMemoryInfo(checked(device));
  return {Bytes{static_cast<std::int64_t>(free)}, Bytes{static_cast<std::int64_t>(total)}};
}

void synchronize(int device) {
  const c10::cuda::CUDAGuard guard(checked(device));
  c10::cuda::device_synchronize();
}

// ---- Functions of libtorch_cuda.so; tests run without it ----

void* torch_cuda() {
  static void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  return library;
}

void empty_host_cache() {
  if (torch_cuda() != nullptr) at::getHostAllocator(at::kCUDA)->empty_cache();
}

// Looked up by symbol: its header includes cuBLAS's, which are in no wheel that this build needs.
void clear_workspaces() {
  constexpr const char* kName = "_ZN2at4cuda21clearCublasWorkspacesEv";
  void* const found = torch_cuda() == nullptr ? nullptr : dlsym(torch_cuda(), kName);
  if (found != nullptr) reinterpret_cast<void (*)()>(found)();
}

// Without libtorch_cuda only reserved memory shows that there is a context.
bool has_context(int device) {
  const c10::DeviceIndex index = checked(device);
  if (torch_cuda() != nullptr) return c10::cuda::hasPrimaryContext(index);
  return real::getDeviceStats(index).reserved_bytes[0].allocated > 0;
}

allocator::BlockInfo converted(const real::BlockInfo& block, std::uint64_t address,
                               std::uint32_t stream) {
  using State = allocator::BlockInfo::State;
  return {.address = address,
          .size = Bytes{static_cast<std::int64_t>(block.size)},
          .requested = Bytes{static_cast<std::int64_t>(block.requested_size)},
          .stream = stream,
          .state = block.allocated ? State::allocated
                   : block.active  ? State::awaiting_free
                                   : State::free};
}

allocator::SegmentInfo converted(const real::SegmentInfo& segment) {
  const std::uint32_t stream = stream_number(segment.device, segment.stream);
  allocator::SegmentInfo ours{
      .address = segment.address,
      .size = Bytes{static_cast<std::int64_t>(segment.total_size)},
      .stream = stream,
      .is_large = segment.is_large,
      .is_expandable = segment.is_expandable,
      .pool = std::max(segment.owner_private_pool_id.first, segment.owner_private_pool_id.second),
      .blocks = {}};
  std::uint64_t address = segment.address;
  for (const real::BlockInfo& block : segment.blocks) {
    ours.blocks.push_back(converted(block, address, stream));
    address += block.size;
  }
  return ours;
}

std::vector<allocator::SegmentInfo> snapshot(int device) {
  const c10::DeviceIndex index = checked(device);
  std::vector<allocator::SegmentInfo> segments;
  for (const real::SegmentInfo& segment : real::snapshot({0, 0}, false).segments)
    if (segment.device == index) segments.push_back(converted(segment));
  std::sort(segments.begin(), segments.end(),
            [](const auto& one, const auto& other) { return one.address < other.address; });
  return segments;
}

const CudaFunctions kFunctions = {
    .name = "cuda",
    .why_absent = &why_absent,
    .device_count = []() -> int { return c10::cuda::device_count(); },
    .has_context = &has_context,
    .memory_info = &memory_info,
    .set_memory_fraction =
        [](int device, double fraction) { real::setMemoryFraction(fraction, checked(device)); },
    .memory_fraction = [](int device) { return real::getMemoryFraction(checked(device)); },
    .synchronize = &synchronize,
    .empty_host_cache = &empty_host_cache,
    .clear_workspaces = &clear_workspaces,
    .ask_before_refusing = &ask_before_refusing,
    .snapshot = &snapshot,
    .record = [](int device, trace::Recorder* recorder) { record(checked(device), recorder); },
};

}  // namespace
}  // namespace headroom::cuda

// The library's only exported symbol. Null if the caller was built with another version of the
// table.
extern "C" [[gnu::visibility("default")]] const headroom::CudaFunctions* headroom_cuda_functions(
    int version);

const headroom::CudaFunctions* headroom_cuda_functions(int version) {
  if (version != headroom::kCudaFunctionsVersion) return nullptr;
  if (c10::cuda::device_count() > 0) headroom::cuda::prepare();
  return &headroom::cuda::kFunctions;
}
