// Exports about accounting: the peak memory of processes that may be gone already. The old-driver
// build has none of them.
#ifndef FAKE_NVML_OLD_DRIVER

#include "calls.h"
#include "give_list.h"

using fake_nvml::AccountingStats;
using fake_nvml::Card;
using fake_nvml::DeviceHandle;
using fake_nvml::Function;
using fake_nvml::on_whole_card;
using fake_nvml::Status;
using fake_nvml::Target;

namespace {

// A card in MIG mode never keeps accounts.
bool keeps_accounts(const Card& card) {
  return card.accounting && card.accounting->mode && !card.mig_on();
}

}  // namespace

FAKE_NVML_EXPORT Status nvmlDeviceGetAccountingMode(DeviceHandle device, unsigned* mode) {
  return on_whole_card(Function::nvmlDeviceGetAccountingMode, device, [&](const Target& target) {
    return fake_nvml::give(keeps_accounts(*target.card), mode);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetAccountingPids(DeviceHandle device, unsigned* count,
                                                    unsigned* pids) {
  return on_whole_card(Function::nvmlDeviceGetAccountingPids, device, [&](const Target& target) {
    if (!keeps_accounts(*target.card)) return Status::kNotSupported;
    std::vector<unsigned> list;
    for (const auto& process : target.card->accounting->processes) list.push_back(process.pid);
    return fake_nvml::give_list(list, count, pids);
  });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetAccountingStats(DeviceHandle device, unsigned pid,
                                                     AccountingStats* stats) {
  return on_whole_card(Function::nvmlDeviceGetAccountingStats, device, [&](const Target& target) {
    if (!keeps_accounts(*target.card)) return Status::kNotSupported;
    for (const auto& process : target.card->accounting->processes) {
      if (process.pid == pid) return fake_nvml::give(process.stats, stats);
    }
    return Status::kNotFound;
  });
}

#endif
