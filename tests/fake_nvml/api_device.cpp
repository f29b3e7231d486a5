// Exports about one device: what it is, its memory, load and state.
#include <cstdio>

#include "calls.h"

using fake_nvml::DeviceHandle;
using fake_nvml::Function;
using fake_nvml::give;
using fake_nvml::give_text;
using fake_nvml::Memory;
using fake_nvml::on_device;
using fake_nvml::on_whole_card;
using fake_nvml::PciAddress;
using fake_nvml::Status;
using fake_nvml::Target;

namespace {

// A card without video memory of its own (an integrated GPU) has none to report.
Status memory_of(const Target& target, Memory& memory) {
  if (target.mig != nullptr) {
    memory = target.mig->memory;
    return Status::kSuccess;
  }
  return give(target.card->memory, &memory);
}

template <class Info>
void fill_numbers(const PciAddress& pci, Info& info) {
  info.domain = pci.domain;
  info.bus = pci.bus;
  info.device = pci.device;
  info.pci_device_id = pci.device_id;
}

template <std::size_t size>
void print_bus_id(const char* format, const PciAddress& pci, char (&out)[size]) {
  std::snprintf(out, size, format, pci.domain, pci.bus, pci.device);
}

constexpr const char* kLegacyBusId = "%04X:%02X:%02X.0";
constexpr const char* kBusId = "%08X:%02X:%02X.0";

}  // namespace

FAKE_NVML_EXPORT Status nvmlDeviceGetIndex(DeviceHandle device, unsigned* index) {
  return on_device(Function::nvmlDeviceGetIndex, device, [&](const Target& target) {
    return give(target.mig == nullptr ? target.card_index : target.mig_index, index);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetName(DeviceHandle device, char* name, unsigned length) {
  return on_device(Function::nvmlDeviceGetName, device, [&](const Target& target) {
    return give_text(target.mig == nullptr ? target.card->name : target.mig->name, name, length);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetUUID(DeviceHandle device, char* uuid, unsigned length) {
  return on_device(Function::nvmlDeviceGetUUID, device, [&](const Target& target) {
    return give_text(target.mig == nullptr ? target.card->uuid : target.mig->uuid, uuid, length);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetPciInfo_v3(DeviceHandle device, fake_nvml::PciInfo* pci) {
  return on_whole_card(Function::nvmlDeviceGetPciInfo_v3, device, [&](const Target& target) {
    fake_nvml::PciInfo info{};
    fill_numbers(target.card->pci, info);
    print_bus_id(kLegacyBusId, target.card->pci, info.bus_id_legacy);
    print_bus_id(kBusId, target.card->pci, info.bus_id);
    return give(info, pci);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetPciInfo_v2(DeviceHandle device, fake_nvml::PciInfoV2* pci) {
  return on_whole_card(Function::nvmlDeviceGetPciInfo_v2, device, [&](const Target& target) {
    fake_nvml::PciInfoV2 info{};
    fill_numbers(target.card->pci, info);
    print_bus_id(kLegacyBusId, target.card->pci, info.bus_id);
    return give(info, pci);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetMemoryInfo(DeviceHandle device, fake_nvml::MemoryInfo* info) {
  return on_device(Function::nvmlDeviceGetMemoryInfo, device, [&](const Target& target) {
    Memory memory;
    if (const Status status = memory_of(target, memory); status != Status::kSuccess) return status;
    return give(fake_nvml::MemoryInfo{memory.total, memory.free, memory.reserved + memory.used},
                info);
  });
}

#ifndef FAKE_NVML_OLD_DRIVER
FAKE_NVML_EXPORT Status nvmlDeviceGetMemoryInfo_v2(DeviceHandle device,
                                                   fake_nvml::MemoryInfoV2* info) {
  return on_device(Function::nvmlDeviceGetMemoryInfo_v2, device, [&](const Target& target) {
    if (info == nullptr) return Status::kInvalidArgument;
    if (info->version != fake_nvml::kMemoryInfoV2Version) return Status::kArgumentVersionMismatch;
    Memory memory;
    if (const Status status = memory_of(target, memory); status != Status::kSuccess) return status;
    return give(fake_nvml::MemoryInfoV2{info->version, memory.total, memory.reserved, memory.free,
                                        memory.used},
                info);
  });
}
#endif

// NVML has no load figures for a card in MIG mode, nor for its slices.
FAKE_NVML_EXPORT Status nvmlDeviceGetUtilizationRates(DeviceHandle device,
                                                      fake_nvml::UtilizationRates* rates) {
  return on_whole_card(Function::nvmlDeviceGetUtilizationRates, device, [&](const Target& target) {
    if (target.card->mig_on() || !target.card->utilization) return Status::kNotSupported;
    return give(
        fake_nvml::UtilizationRates{*target.card->utilization, target.card->memory_utilization},
        rates);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetTemperature(DeviceHandle device, unsigned sensor,
                                                 unsigned* celsius) {
  return on_whole_card(Function::nvmlDeviceGetTemperature, device, [&](const Target& target) {
    // There is one sensor, the GPU's.
    return sensor == 0 ? give(target.card->temperature, celsius) : Status::kInvalidArgument;
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetPowerUsage(DeviceHandle device, unsigned* milliwatts) {
  return on_whole_card(Function::nvmlDeviceGetPowerUsage, device, [&](const Target& target) {
    return give(target.card->power_mw, milliwatts);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetEnforcedPowerLimit(DeviceHandle device, unsigned* milliwatts) {
  return on_whole_card(
      Function::nvmlDeviceGetEnforcedPowerLimit, device,
      [&](const Target& target) { return give(target.card->power_limit_mw, milliwatts); });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetPersistenceMode(DeviceHandle device, unsigned* mode) {
  return on_whole_card(Function::nvmlDeviceGetPersistenceMode, device,
                       [&](const Target& target) { return give(target.card->persistence, mode); });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetComputeMode(DeviceHandle device, unsigned* mode) {
  return on_whole_card(Function::nvmlDeviceGetComputeMode, device,
                       [&](const Target& target) { return give(target.card->compute_mode, mode); });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetCudaComputeCapability(DeviceHandle device, int* major,
                                                           int* minor) {
  return on_whole_card(Function::nvmlDeviceGetCudaComputeCapability, device,
                       [&](const Target& target) {
                         if (major == nullptr || minor == nullptr) return Status::kInvalidArgument;
                         *major = target.card->capability_major;
                         *minor = target.card->capability_minor;
                         return Status::kSuccess;
                       });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetCurrPcieLinkGeneration(DeviceHandle device,
                                                            unsigned* generation) {
  return on_whole_card(
      Function::nvmlDeviceGetCurrPcieLinkGeneration, device,
      [&](const Target& target) { return give(target.card->pcie_generation, generation); });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetCurrPcieLinkWidth(DeviceHandle device, unsigned* width) {
  return on_whole_card(Function::nvmlDeviceGetCurrPcieLinkWidth, device,
                       [&](const Target& target) { return give(target.card->pcie_width, width); });
}
