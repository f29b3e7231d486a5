// Whether the process takes the device path: Headroom's CUDA part is loaded, and its figures follow
// what a tensor takes. On a simulated card the same figures come from the model of the allocator.
#include <ATen/ATen.h>

#include <unistd.h>

#include "headroom/cuda/load.h"
#include "headroom/gpu/machine.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/memory_statistics.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

constexpr Bytes kHeld{256 << 20};

void expect(bool holds, const char* words, std::vector<std::string>& complaints) {
  if (!holds) complaints.emplace_back(words);
}

void check_functions(c10::Device device, Json& figures, std::vector<std::string>& complaints) {
  const CudaFunctions& cuda = cuda_functions();
  figures["functions"] = std::string(cuda.name);
  figures["cards"] = cuda.device_count();
  expect(cuda.name == "cuda", "the table of CUDA functions is that of no_cuda", complaints);
  expect(at::globalContext().hasCUDA(), "LibTorch says that there is no CUDA", complaints);
  expect(!cuda.has_context(device.index()), "there is a context before the first tensor",
         complaints);
}

// What the driver reports for this process; nothing if it cannot know it (a container).
std::optional<Bytes> of_this_process(const Place& place) {
  const auto card = place.of_driver();
  if (!card || !card->processes) return {};
  for (const gpu::GpuProcess& process : *card->processes)
    if (process.pid == ::getpid()) return process.used;
  return {};
}

}  // namespace

Outcome check_library(Place& place) {
  const c10::Device device = place.open();
  std::vector<std::string> complaints;
  Json figures = Json::object({{"device", device.str()}});
  if (device.is_cuda()) check_functions(device, figures, complaints);

  const memory::GpuMemoryStats before = memory::get_gpu_memory_stats(device);
  at::Tensor held = at::ones({kHeld.count}, at::device(device).dtype(at::kByte));
  expect(held.device() == device, "the tensor is elsewhere", complaints);
  expect(held.sum().item<std::int64_t>() == kHeld.count, "the card sums wrongly", complaints);
  // From here on no kernel is loaded, which would take memory beside the allocator.
  const memory::GpuMemoryStats with = memory::get_gpu_memory_stats(device);
  expect(with.allocated - before.allocated == kHeld, "`allocated` did not follow the tensor",
         complaints);
  expect(with.free && with.total && *with.free < *with.total, "free and total are not known",
         complaints);
  const std::optional<Bytes> in_driver = of_this_process(place);
  if (in_driver)
    expect(*in_driver > kHeld, "NVML shows less for this process than it holds", complaints);
  held.reset();
  (void)memory::clear_gpu_memory(true);
  const memory::GpuMemoryStats cleared = memory::get_gpu_memory_stats(device);
  expect(cleared.reserved.count == 0, "memory stayed reserved after clearing", complaints);
  expect(cleared.free && with.free && *cleared.free - *with.free >= kHeld,
         "the card did not get the memory back", complaints);

  figures["total"] = or_null(with.total);
  figures["context"] = in_driver ? Json((*in_driver - with.reserved).count) : Json();
  figures["process_in_nvml"] = or_null(in_driver);
  return judged(complaints,
                device.str() + ", " + to_string(with.total.value_or(Bytes{})) + "; " +
                    to_string(kHeld) + " taken, counted and given back" +
                    (in_driver ? ", process " + to_string(*in_driver) + " in NVML" : ""),
                std::move(figures));
}

}  // namespace headroom::gpu_check
