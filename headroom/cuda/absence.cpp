#include "headroom/cuda/absence.h"

#include <mutex>

#include "headroom/base/error.h"

namespace headroom::no_cuda {
namespace {

std::mutex mutex;
std::string reason = "LibTorch's CUDA part, libtorch_cuda.so, is not in this process";

std::string why_absent() {
  const std::lock_guard lock(mutex);
  return reason;
}

[[noreturn]] void refuse(int device) {
  throw UnavailableError(
      expectation("cuda", "a GPU that this process can use",
                  "cuda:" + std::to_string(device) + ", and there is none: " + why_absent(),
                  "`headroom doctor`, or a simulated card such as sim:0"));
}

constexpr CudaFunctions kFunctions = {
    .name = "no_cuda",
    .why_absent = &why_absent,
    .device_count = [] { return 0; },
    .has_context = [](int) { return false; },
    .memory_info = [](int device) -> std::pair<Bytes, Bytes> { refuse(device); },
    .set_memory_fraction = [](int device, double) { refuse(device); },
    .memory_fraction = [](int device) -> double { refuse(device); },
    .synchronize = [](int device) { refuse(device); },
    .empty_host_cache = [] {},
    .clear_workspaces = [] {},
    .ask_before_refusing = [](CudaFunctions::Ask) {},
    .snapshot = [](int device) -> std::vector<allocator::SegmentInfo> { refuse(device); },
    .record = [](int device, trace::Recorder*) { refuse(device); },
};

}  // namespace

const CudaFunctions& functions() {
  return kFunctions;
}

void set_reason(const std::string& sentence) {
  const std::lock_guard lock(mutex);
  reason = sentence;
}

}  // namespace headroom::no_cuda
