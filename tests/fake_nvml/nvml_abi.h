// The part of NVIDIA's NVML binary interface that the fake library speaks: structures, return codes
// and the names of the functions it exports.
//
// Written anew from the public NVML documentation (API 13; the older layouts as noted) and on
// purpose shared with nothing in headroom/: if the product and this file disagree about an offset,
// a test must fail. The static_asserts hold the sizes of Linux on 64 bits.
#pragma once

#include <cstddef>
#include <limits>

namespace fake_nvml {

/// nvmlReturn_t. A C enum in the ABI, hence the size of an int.
enum class Status : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kAlreadyInitialized = 5,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInforom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kLibRmVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kVgpuEccNotSupported = 22,
  kInsufficientResources = 23,
  kFreqNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kGpuNotFound = 28,
  kInvalidState = 29,
  kResetTypeNotSupported = 30,
  kUnknown = 999,
};

/// nvmlDevice_t: opaque to the caller. The fake defines it in calls.cpp.
struct OpaqueDevice;
using DeviceHandle = OpaqueDevice*;

/// NVML writes "not available" as -1 into unsigned fields.
inline constexpr unsigned long long kNotAvailable64 =
    std::numeric_limits<unsigned long long>::max();
inline constexpr unsigned kNotAvailable32 = std::numeric_limits<unsigned>::max();

/// nvmlMemory_t. `used` contains what the driver reserved: used + free = total.
struct MemoryInfo {
  unsigned long long total, free, used;
};
static_assert(sizeof(MemoryInfo) == 24);

/// nvmlMemory_v2_t. Note the order: reserved stands before free, and `used` is without it:
/// reserved + used + free = total.
struct MemoryInfoV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryInfoV2) == 40 && offsetof(MemoryInfoV2, total) == 8);

/// What a caller must write into MemoryInfoV2::version (0x02000028).
inline constexpr unsigned kMemoryInfoV2Version = unsigned{sizeof(MemoryInfoV2)} | (2u << 24);

/// nvmlUtilization_t, in percent.
struct UtilizationRates {
  unsigned gpu, memory;
};
static_assert(sizeof(UtilizationRates) == 8);

/// nvmlPciInfo_t, the layout of nvmlDeviceGetPciInfo_v3.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);

/// The layout of nvmlDeviceGetPciInfo and _v2, from before the long bus id: 16 bytes shorter, so
/// these functions must not write a bus_id at the end of the new structure.
struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  unsigned reserved[4];
};
static_assert(sizeof(PciInfoV2) == 52);

/// nvmlProcessInfo_v1_t, for the process lists without suffix.
struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_gpu_memory;
};
static_assert(sizeof(ProcessInfoV1) == 16);

/// nvmlProcessInfo_v2_t, for the _v2 and the _v3 process lists. Outside MIG both ids are -1.
struct ProcessInfoV2 {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance_id, compute_instance_id;
};
static_assert(sizeof(ProcessInfoV2) == 24 && offsetof(ProcessInfoV2, gpu_instance_id) == 16);

/// nvmlProcessUtilizationSample_t; the time is the CPU's, in microseconds.
struct ProcessUtilizationSample {
  unsigned pid;
  unsigned long long timestamp_us;
  unsigned sm, memory, encoder, decoder;
};
static_assert(sizeof(ProcessUtilizationSample) == 32);

/// nvmlAccountingStats_t.
struct AccountingStats {
  unsigned gpu_utilization, memory_utilization;
  unsigned long long max_memory_bytes, time_ms, start_time_us;
  unsigned is_running;
  unsigned reserved[5];
};
static_assert(sizeof(AccountingStats) == 56 && offsetof(AccountingStats, is_running) == 32);

/// Every NVML function the fake can export. The old-driver build lacks some of them, yet a state
/// file may name them: a test then runs unchanged against both builds.
#define FAKE_NVML_FUNCTIONS(X)                    \
  X(nvmlInit_v2)                                  \
  X(nvmlInitWithFlags)                            \
  X(nvmlShutdown)                                 \
  X(nvmlErrorString)                              \
  X(nvmlSystemGetDriverVersion)                   \
  X(nvmlSystemGetNVMLVersion)                     \
  X(nvmlSystemGetCudaDriverVersion)               \
  X(nvmlSystemGetCudaDriverVersion_v2)            \
  X(nvmlDeviceGetCount_v2)                        \
  X(nvmlDeviceGetHandleByIndex_v2)                \
  X(nvmlDeviceGetHandleByUUID)                    \
  X(nvmlDeviceGetIndex)                           \
  X(nvmlDeviceGetName)                            \
  X(nvmlDeviceGetUUID)                            \
  X(nvmlDeviceGetPciInfo_v2)                      \
  X(nvmlDeviceGetPciInfo_v3)                      \
  X(nvmlDeviceGetMemoryInfo)                      \
  X(nvmlDeviceGetMemoryInfo_v2)                   \
  X(nvmlDeviceGetUtilizationRates)                \
  X(nvmlDeviceGetTemperature)                     \
  X(nvmlDeviceGetPowerUsage)                      \
  X(nvmlDeviceGetEnforcedPowerLimit)              \
  X(nvmlDeviceGetPersistenceMode)                 \
  X(nvmlDeviceGetComputeMode)                     \
  X(nvmlDeviceGetCudaComputeCapability)           \
  X(nvmlDeviceGetCurrPcieLinkGeneration)          \
  X(nvmlDeviceGetCurrPcieLinkWidth)               \
  X(nvmlDeviceGetComputeRunningProcesses)         \
  X(nvmlDeviceGetComputeRunningProcesses_v2)      \
  X(nvmlDeviceGetComputeRunningProcesses_v3)      \
  X(nvmlDeviceGetGraphicsRunningProcesses)        \
  X(nvmlDeviceGetGraphicsRunningProcesses_v2)     \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3)     \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3)   \
  X(nvmlDeviceGetProcessUtilization)              \
  X(nvmlDeviceGetMigMode)                         \
  X(nvmlDeviceGetMaxMigDeviceCount)               \
  X(nvmlDeviceGetMigDeviceHandleByIndex)          \
  X(nvmlDeviceIsMigDeviceHandle)                  \
  X(nvmlDeviceGetGpuInstanceId)                   \
  X(nvmlDeviceGetComputeInstanceId)               \
  X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
  X(nvmlDeviceGetAccountingMode)                  \
  X(nvmlDeviceGetAccountingPids)                  \
  X(nvmlDeviceGetAccountingStats)

/// Enumerators carry the names of the C functions, so that each export can name itself.
enum class Function : unsigned {
#define FAKE_NVML_ENUMERATOR(name) name,
  FAKE_NVML_FUNCTIONS(FAKE_NVML_ENUMERATOR)
#undef FAKE_NVML_ENUMERATOR
};

inline constexpr const char* kFunctionNames[] = {
#define FAKE_NVML_NAME(name) #name,
    FAKE_NVML_FUNCTIONS(FAKE_NVML_NAME)
#undef FAKE_NVML_NAME
};

inline constexpr std::size_t kFunctionCount = sizeof(kFunctionNames) / sizeof(kFunctionNames[0]);

}  // namespace fake_nvml
