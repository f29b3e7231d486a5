// The table behind status.h.
#include "status.h"

namespace fake_nvml {
namespace {

struct StatusText {
  Status status;
  std::string_view name;
  const char* sentence;
};

constexpr StatusText kTexts[] = {
    {Status::kSuccess, "OK", "Success"},
    {Status::kSuccess, "SUCCESS", "Success"},
    {Status::kUninitialized, "UNINITIALIZED", "Uninitialized"},
    {Status::kInvalidArgument, "INVALID_ARGUMENT", "Invalid Argument"},
    {Status::kNotSupported, "NOT_SUPPORTED", "Not Supported"},
    {Status::kNoPermission, "NO_PERMISSION", "Insufficient Permissions"},
    {Status::kAlreadyInitialized, "ALREADY_INITIALIZED", "Already Initialized"},
    {Status::kNotFound, "NOT_FOUND", "Not Found"},
    {Status::kInsufficientSize, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {Status::kInsufficientPower, "INSUFFICIENT_POWER", "Insufficient External Power"},
    {Status::kDriverNotLoaded, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {Status::kTimeout, "TIMEOUT", "Timeout"},
    {Status::kIrqIssue, "IRQ_ISSUE", "Interrupt Request Issue"},
    {Status::kLibraryNotFound, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {Status::kFunctionNotFound, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {Status::kCorruptedInforom, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {Status::kGpuIsLost, "GPU_IS_LOST", "GPU is lost"},
    {Status::kResetRequired, "RESET_REQUIRED", "GPU requires reset"},
    {Status::kOperatingSystem, "OPERATING_SYSTEM", "Blocked by the operating system"},
    {Status::kLibRmVersionMismatch, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {Status::kInUse, "IN_USE", "In use by another client"},
    {Status::kMemory, "MEMORY", "Insufficient Memory"},
    {Status::kNoData, "NO_DATA", "No data"},
    {Status::kVgpuEccNotSupported, "VGPU_ECC_NOT_SUPPORTED", "vGPU ECC Not Supported"},
    {Status::kInsufficientResources, "INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {Status::kFreqNotSupported, "FREQ_NOT_SUPPORTED", "Frequency Not Supported"},
    {Status::kArgumentVersionMismatch, "ARGUMENT_VERSION_MISMATCH", "Argument Version Mismatch"},
    {Status::kDeprecated, "DEPRECATED", "Deprecated"},
    {Status::kNotReady, "NOT_READY", "Not Ready"},
    {Status::kGpuNotFound, "GPU_NOT_FOUND", "No GPUs Found"},
    {Status::kInvalidState, "INVALID_STATE", "Invalid State"},
    {Status::kResetTypeNotSupported, "RESET_TYPE_NOT_SUPPORTED", "Reset Type Not Supported"},
    {Status::kUnknown, "UNKNOWN", "Unknown Error"},
};

}  // namespace

std::optional<Status> status_from_name(std::string_view name) {
  for (const StatusText& text : kTexts) {
    if (text.name == name) return text.status;
  }
  return std::nullopt;
}

const char* status_sentence(Status status) {
  for (const StatusText& text : kTexts) {
    if (text.status == status) return text.sentence;
  }
  return "Unknown Error";
}

}  // namespace fake_nvml
