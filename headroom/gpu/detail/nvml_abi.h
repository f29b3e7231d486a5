// The part of NVML's binary interface that Headroom uses, written from NVIDIA's public API
// reference (docs.nvidia.com/deploy/nvml-api), so that no toolkit is needed to build.
//
// `_v2`, `_v3` mark versions of one function; drivers keep the old versions. A layout never changes
// within a version.
#pragma once

namespace headroom::gpu::nvml {

using Device = struct DeviceHandle*;  // opaque

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kLibRmVersionMismatch = 18,
  kUnknown = 999,
};

struct Memory {
  unsigned long long total, free, used;  // `used` contains the driver's reserved memory
};

struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned int kMemoryV2 = sizeof(MemoryV2) | (2U << 24);

struct Utilization {
  unsigned int gpu, memory;
};

struct PciInfo {
  char legacy_bus_id[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct ProcessV1 {
  unsigned int pid;
  unsigned long long used;
};
struct ProcessV2 {  // for the _v2 and _v3 functions
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};

struct ProcessUtilization {
  unsigned int pid;
  unsigned long long time_us;
  unsigned int sm, memory, encoder, decoder;  // percent
};

struct AccountingStats {
  unsigned int gpu_utilization, memory_utilization;
  unsigned long long max_memory, time_ms, start_time_us;
  unsigned int is_running;
  unsigned int reserved[5];
};

inline constexpr unsigned long long kNotAvailable = ~0ULL;
inline constexpr unsigned int kNoInstance = 0xFFFFFFFFU;
inline constexpr unsigned int kTemperatureOfGpu = 0;
inline constexpr unsigned int kUuidSize = 96, kNameSize = 96, kVersionSize = 81;

}  // namespace headroom::gpu::nvml
