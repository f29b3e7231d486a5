// Exports about the processes on a device: the lists of compute, graphics and MPS clients in the
// layouts of three driver generations, and the utilisation samples.
#include <chrono>
#include <cstdio>

#include "calls.h"
#include "give_list.h"

using fake_nvml::DeviceHandle;
using fake_nvml::Function;
using fake_nvml::MigDevice;
using fake_nvml::on_device;
using fake_nvml::on_whole_card;
using fake_nvml::Process;
using fake_nvml::ProcessInfoV1;
using fake_nvml::ProcessInfoV2;
using fake_nvml::ProcessUtilizationSample;
using fake_nvml::Status;
using fake_nvml::Target;

namespace {

using Kind = bool Process::*;
using Infos = std::vector<ProcessInfoV2>;

void append(const std::vector<Process>& processes, Kind kind, unsigned gpu_instance,
            unsigned compute_instance, Infos& infos) {
  for (const Process& process : processes) {
    if (!(process.*kind)) continue;
    infos.push_back({process.pid, process.used.value_or(fake_nvml::kNotAvailable64), gpu_instance,
                     compute_instance});
  }
}

void append(const MigDevice& device, Kind kind, Infos& infos) {
  append(device.processes, kind, device.gpu_instance, device.compute_instance, infos);
}

// A card in MIG mode lists the processes of all its devices, each with its instances.
Infos list_processes(const Target& target, Kind kind) {
  Infos infos;
  if (target.mig != nullptr) {
    append(*target.mig, kind, infos);
    return infos;
  }
  append(target.card->processes, kind, fake_nvml::kNotAvailable32, fake_nvml::kNotAvailable32,
         infos);
  if (!target.card->mig_on()) return infos;
  for (const auto& device : target.card->mig->devices) {
    if (device) append(*device, kind, infos);
  }
  return infos;
}

Status give_processes(Function function, DeviceHandle device, Kind kind, unsigned* count,
                      ProcessInfoV2* infos) {
  return on_device(function, device, [&](const Target& target) {
    return fake_nvml::give_list(list_processes(target, kind), count, infos);
  });
}

#ifndef FAKE_NVML_OLD_DRIVER
// Drivers 535 before 535.104 wrote entries of 32 bytes from _v3 (a `usedGpuCcProtectedMemory` at
// the end), which later ones took back (nvitop issue 79, pynvml issue 48).
struct LongProcessInfo {
  ProcessInfoV2 info;
  unsigned long long protected_memory;
};

bool writes_long_entries(const fake_nvml::State& state) {
  int major = 0, minor = 0;
  return std::sscanf(state.driver.c_str(), "%d.%d", &major, &minor) == 2 && major == 535 &&
         minor < 104;
}

Status give_newest_processes(Function function, DeviceHandle device, Kind kind, unsigned* count,
                             ProcessInfoV2* infos) {
  return on_device(function, device, [&](const Target& target) {
    const Infos list = list_processes(target, kind);
    if (!writes_long_entries(*target.state)) return fake_nvml::give_list(list, count, infos);
    std::vector<LongProcessInfo> long_list;
    for (const ProcessInfoV2& info : list) long_list.push_back({info, 0});
    return fake_nvml::give_list(long_list, count, reinterpret_cast<LongProcessInfo*>(infos));
  });
}

#endif

Status give_processes(Function function, DeviceHandle device, Kind kind, unsigned* count,
                      ProcessInfoV1* infos) {
  return on_device(function, device, [&](const Target& target) {
    std::vector<ProcessInfoV1> old_infos;
    for (const ProcessInfoV2& info : list_processes(target, kind)) {
      old_infos.push_back({info.pid, info.used_gpu_memory});
    }
    return fake_nvml::give_list(old_infos, count, infos);
  });
}

unsigned long long now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::vector<ProcessUtilizationSample> list_samples(const Target& target, unsigned long long since) {
  std::vector<ProcessUtilizationSample> samples;
  for (const Process& process : target.card->processes) {
    const unsigned long long time = process.timestamp_us.value_or(now_us());
    if (!process.sm || time <= since) continue;
    samples.push_back({process.pid, time, *process.sm, process.memory_utilization, 0, 0});
  }
  return samples;
}

// Asked for the size, drivers answer with the room of their sample buffer, 100, busy or not
// (github.com/NVIDIA/go-nvml issue 11).
constexpr unsigned kSampleRoom = 100;

}  // namespace

FAKE_NVML_EXPORT Status nvmlDeviceGetComputeRunningProcesses(DeviceHandle device, unsigned* count,
                                                             ProcessInfoV1* infos) {
  return give_processes(Function::nvmlDeviceGetComputeRunningProcesses, device, &Process::compute,
                        count, infos);
}

FAKE_NVML_EXPORT Status nvmlDeviceGetComputeRunningProcesses_v2(DeviceHandle device,
                                                                unsigned* count,
                                                                ProcessInfoV2* infos) {
  return give_processes(Function::nvmlDeviceGetComputeRunningProcesses_v2, device,
                        &Process::compute, count, infos);
}

FAKE_NVML_EXPORT Status nvmlDeviceGetGraphicsRunningProcesses(DeviceHandle device, unsigned* count,
                                                              ProcessInfoV1* infos) {
  return give_processes(Function::nvmlDeviceGetGraphicsRunningProcesses, device, &Process::graphics,
                        count, infos);
}

FAKE_NVML_EXPORT Status nvmlDeviceGetGraphicsRunningProcesses_v2(DeviceHandle device,
                                                                 unsigned* count,
                                                                 ProcessInfoV2* infos) {
  return give_processes(Function::nvmlDeviceGetGraphicsRunningProcesses_v2, device,
                        &Process::graphics, count, infos);
}

#ifndef FAKE_NVML_OLD_DRIVER
FAKE_NVML_EXPORT Status nvmlDeviceGetComputeRunningProcesses_v3(DeviceHandle device,
                                                                unsigned* count,
                                                                ProcessInfoV2* infos) {
  return give_newest_processes(Function::nvmlDeviceGetComputeRunningProcesses_v3, device,
                               &Process::compute, count, infos);
}

FAKE_NVML_EXPORT Status nvmlDeviceGetGraphicsRunningProcesses_v3(DeviceHandle device,
                                                                 unsigned* count,
                                                                 ProcessInfoV2* infos) {
  return give_newest_processes(Function::nvmlDeviceGetGraphicsRunningProcesses_v3, device,
                               &Process::graphics, count, infos);
}

FAKE_NVML_EXPORT Status nvmlDeviceGetMPSComputeRunningProcesses_v3(DeviceHandle device,
                                                                   unsigned* count,
                                                                   ProcessInfoV2* infos) {
  return give_newest_processes(Function::nvmlDeviceGetMPSComputeRunningProcesses_v3, device,
                               &Process::mps, count, infos);
}
#endif

FAKE_NVML_EXPORT Status nvmlDeviceGetProcessUtilization(DeviceHandle device,
                                                        ProcessUtilizationSample* samples,
                                                        unsigned* count, unsigned long long since) {
  return on_whole_card(
      Function::nvmlDeviceGetProcessUtilization, device, [&](const Target& target) {
        if (target.card->mig_on()) return Status::kNotSupported;
        if (count == nullptr) return Status::kInvalidArgument;
        const auto list = list_samples(target, since);
        if (samples == nullptr) {
          *count = std::max(kSampleRoom, static_cast<unsigned>(list.size()));
          return Status::kInsufficientSize;
        }
        return list.empty() ? Status::kNotFound : fake_nvml::give_list(list, count, samples);
      });
}
