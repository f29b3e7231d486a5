#include "headroom/gpu/detail/nvml_library.h"

#include <cstdio>

namespace headroom::gpu::nvml {

std::variant<Library, std::string> Library::load(const std::string& path) {
  // RTLD_NODELETE: at exit a thread may still hang in the library.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return "no NVIDIA driver here: " + std::string(::dlerror());
  Library library(handle);
  auto* init = library.find<Return()>({"nvmlInit_v2", "nvmlInit"});
  if (init == nullptr) return path + " is not NVIDIA's management library (it has no nvmlInit)";
  if (const Return code = init(); code != kSuccess)
    return "the NVIDIA driver cannot be used: " + library.describe(code);
  int major = 0, minor = 0;
  const std::string version =
      library.ask_text("nvmlSystemGetDriverVersion", kVersionSize).optional().value_or("");
  library.long_v3_entries_ =
      std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 && major == 535 && minor < 104;
  return library;
}

std::string Library::describe(Return code) const {
  auto* function = find<const char*(Return)>({"nvmlErrorString"});
  const char* text = function == nullptr ? nullptr : function(code);
  return text != nullptr ? std::string(text) : "NVML error " + std::to_string(code);
}

Answer<std::string> Library::pci(Device device) const {
  // _v2 fills only the short form of the address, _v3 both.
  const auto info = ask<PciInfo>({"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}, device);
  if (!info) return info.code();
  const std::string_view full(info->bus_id, sizeof info->bus_id);
  const std::string_view brief(info->legacy_bus_id, sizeof info->legacy_bus_id);
  const std::string_view text = full[0] != '\0' ? full : brief;
  return std::string(text.substr(0, text.find('\0')));
}

Answer<MemoryReading> Library::memory(Device device) const {
  if (auto* v2 = find<Return(Device, MemoryV2*)>({"nvmlDeviceGetMemoryInfo_v2"})) {
    MemoryV2 reading{.version = kMemoryV2, .total = 0, .reserved = 0, .free = 0, .used = 0};
    const Return code = v2(device, &reading);
    if (code == kSuccess)
      return MemoryReading{reading.total, reading.free, reading.used, reading.reserved};
    // Drivers around R470 have this function but refuse its structure; they still support the first
    // one.
    if (code != kNotSupported && code != kInvalidArgument && code != kFunctionNotFound) return code;
  }
  const auto v1 = ask<Memory>({"nvmlDeviceGetMemoryInfo"}, device);
  if (!v1) return v1.code();
  return MemoryReading{v1->total, v1->free, v1->used, {}};
}

Answer<std::pair<int, int>> Library::capability(Device device) const {
  auto* function = find<Return(Device, int*, int*)>({"nvmlDeviceGetCudaComputeCapability"});
  if (function == nullptr) return kFunctionNotFound;
  int major = 0, minor = 0;
  if (const Return code = function(device, &major, &minor); code != kSuccess) return code;
  return std::pair(major, minor);
}

namespace {

// NVML's way to return lists: call with a buffer, and again with a larger one if it was too small.
// The process list changes between calls, hence the slack and the limited number of tries.
template <typename Entry, typename Function>
Answer<std::vector<Entry>> read_list(Function* function, Device device) {
  std::vector<Entry> entries(32);
  for (int tries = 0; tries < 4; ++tries) {
    auto count = static_cast<unsigned int>(entries.size());
    const Return code = function(device, &count, entries.data());
    if (code == kSuccess) {
      entries.resize(count);
      return entries;
    }
    if (code != kInsufficientSize) return code;
    entries.resize(2 * static_cast<std::size_t>(count) + 8);
  }
  return kInsufficientSize;
}

template <typename T>
std::optional<T> known(T value, T not_available) {
  if (value == not_available) return {};
  return value;
}

}  // namespace

Answer<std::vector<ProcessReading>> Library::processes(const char* v3, const char* v2,
                                                       const char* v1, Device device) const {
  std::vector<ProcessReading> readings;
  // Drivers 535 before 535.104 write longer entries from _v3 than all others; their _v2 is correct.
  using Newer = Return(Device, unsigned int*, ProcessV2*);
  if (auto* newer = long_v3_entries_ ? find<Newer>({v2}) : find<Newer>({v3, v2})) {
    const auto entries = read_list<ProcessV2>(newer, device);
    if (!entries) return entries.code();
    for (const ProcessV2& entry : *entries)
      readings.push_back(
          {entry.pid, known(entry.used, kNotAvailable), known(entry.gpu_instance, kNoInstance)});
  } else if (auto* old = find<Return(Device, unsigned int*, ProcessV1*)>({v1})) {
    const auto entries = read_list<ProcessV1>(old, device);
    if (!entries) return entries.code();
    for (const ProcessV1& entry : *entries)
      readings.push_back({entry.pid, known(entry.used, kNotAvailable), {}});
  } else {
    return kFunctionNotFound;
  }
  return readings;
}

Answer<std::vector<ProcessReading>> Library::compute_processes(Device device) const {
  return processes("nvmlDeviceGetComputeRunningProcesses_v3",
                   "nvmlDeviceGetComputeRunningProcesses_v2",
                   "nvmlDeviceGetComputeRunningProcesses", device);
}

Answer<std::vector<ProcessReading>> Library::graphics_processes(Device device) const {
  return processes("nvmlDeviceGetGraphicsRunningProcesses_v3",
                   "nvmlDeviceGetGraphicsRunningProcesses_v2",
                   "nvmlDeviceGetGraphicsRunningProcesses", device);
}

Answer<unsigned long long> Library::peak_memory(Device device, unsigned int pid) const {
  const auto stats = ask<AccountingStats>({"nvmlDeviceGetAccountingStats"}, device, pid);
  if (!stats) return stats.code();
  if (stats->max_memory == kNotAvailable) return kNotSupported;
  return stats->max_memory;
}

Answer<std::vector<ProcessUtilization>> Library::process_utilization(Device device) const {
  using Function = Return(Device, ProcessUtilization*, unsigned int*, unsigned long long);
  auto* function = find<Function>({"nvmlDeviceGetProcessUtilization"});
  if (function == nullptr) return kFunctionNotFound;
  constexpr unsigned long long kWholeBuffer = 0;
  std::vector<ProcessUtilization> samples(128);
  auto count = static_cast<unsigned int>(samples.size());
  Return code = function(device, samples.data(), &count, kWholeBuffer);
  if (code == kInsufficientSize) {
    samples.resize(count);
    code = function(device, samples.data(), &count, kWholeBuffer);
  }
  // The driver returns "not found" if no process was active.
  if (code == kNotFound) return std::vector<ProcessUtilization>{};
  if (code != kSuccess) return code;
  samples.resize(count);
  return samples;
}

bool Library::mig_enabled(Device device) const {
  auto* function = find<Return(Device, unsigned int*, unsigned int*)>({"nvmlDeviceGetMigMode"});
  unsigned int current = 0, pending = 0;
  return function != nullptr && function(device, &current, &pending) == kSuccess && current == 1;
}

std::vector<Device> Library::mig_devices(Device device) const {
  std::vector<Device> devices;
  const auto most = ask<unsigned int>({"nvmlDeviceGetMaxMigDeviceCount"}, device);
  // Slices keep their index when others are removed, so an empty index does not end the list.
  for (unsigned int i = 0; most && i < *most; ++i)
    if (const auto slice = ask<Device>({"nvmlDeviceGetMigDeviceHandleByIndex"}, device, i))
      devices.push_back(*slice);
  return devices;
}

}  // namespace headroom::gpu::nvml
