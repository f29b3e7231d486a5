// Exports about MIG: whether a card is cut into slices, and the way from a card to its slices and
// back. The old-driver build has none of them.
#ifndef FAKE_NVML_OLD_DRIVER

#include "calls.h"

using fake_nvml::DeviceHandle;
using fake_nvml::Function;
using fake_nvml::give;
using fake_nvml::on_device;
using fake_nvml::on_whole_card;
using fake_nvml::Status;
using fake_nvml::Target;

FAKE_NVML_EXPORT Status nvmlDeviceGetMigMode(DeviceHandle device, unsigned* current,
                                             unsigned* pending) {
  return on_whole_card(Function::nvmlDeviceGetMigMode, device, [&](const Target& target) {
    if (current == nullptr || pending == nullptr) return Status::kInvalidArgument;
    if (!target.card->mig) return Status::kNotSupported;
    *current = target.card->mig->mode ? 1 : 0;
    *pending = target.card->mig->pending ? 1 : 0;
    return Status::kSuccess;
  });
}

// The largest possible number, not the current one: indices below it can be free.
FAKE_NVML_EXPORT Status nvmlDeviceGetMaxMigDeviceCount(DeviceHandle device, unsigned* count) {
  return on_whole_card(Function::nvmlDeviceGetMaxMigDeviceCount, device, [&](const Target& target) {
    return give(target.card->mig_on() ? target.card->mig->max_devices : 0, count);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetMigDeviceHandleByIndex(DeviceHandle device, unsigned index,
                                                            DeviceHandle* mig_device) {
  return on_whole_card(
      Function::nvmlDeviceGetMigDeviceHandleByIndex, device, [&](const Target& target) {
        if (!target.card->mig) return Status::kNotSupported;
        if (!target.card->mig->mode) return Status::kNotFound;
        if (index >= target.card->mig->max_devices) return Status::kInvalidArgument;
        const auto& devices = target.card->mig->devices;
        if (index >= devices.size() || !devices[index]) return Status::kNotFound;
        return give(fake_nvml::handle_of(target.card->uuid, devices[index]->uuid), mig_device);
      });
}

FAKE_NVML_EXPORT Status nvmlDeviceIsMigDeviceHandle(DeviceHandle device, unsigned* is_mig) {
  return on_device(Function::nvmlDeviceIsMigDeviceHandle, device, [&](const Target& target) {
    return give(target.mig == nullptr ? 0 : 1, is_mig);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetGpuInstanceId(DeviceHandle device, unsigned* id) {
  return on_device(Function::nvmlDeviceGetGpuInstanceId, device, [&](const Target& target) {
    return target.mig == nullptr ? Status::kNotSupported : give(target.mig->gpu_instance, id);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetComputeInstanceId(DeviceHandle device, unsigned* id) {
  return on_device(Function::nvmlDeviceGetComputeInstanceId, device, [&](const Target& target) {
    return target.mig == nullptr ? Status::kNotSupported : give(target.mig->compute_instance, id);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetDeviceHandleFromMigDeviceHandle(DeviceHandle mig_device,
                                                                     DeviceHandle* device) {
  return on_device(Function::nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig_device,
                   [&](const Target& target) {
                     if (target.mig == nullptr) return Status::kInvalidArgument;
                     return give(fake_nvml::handle_of(target.card->uuid), device);
                   });
}

#endif
