// Exports without a device: start and end of a session, versions, error texts, and how devices are
// found. Also fake_nvml_calls(), the one function that is not NVML's.
#include "calls.h"
#include "status.h"

using fake_nvml::DeviceHandle;
using fake_nvml::Function;
using fake_nvml::on_system;
using fake_nvml::Place;
using fake_nvml::State;
using fake_nvml::Status;
using fake_nvml::Target;

namespace {

Place find_index(const State& state, unsigned index) {
  if (index >= state.cards.size()) return {Status::kInvalidArgument, {}, {}};
  return {Status::kSuccess, index, {}};
}

Place find_uuid(const State& state, const char* uuid) {
  if (uuid == nullptr) return {Status::kInvalidArgument, {}, {}};
  for (std::size_t card = 0; card < state.cards.size(); ++card) {
    if (state.cards[card].uuid == uuid) return {Status::kSuccess, card, {}};
    if (!state.cards[card].mig_on()) continue;
    const auto& devices = state.cards[card].mig->devices;
    for (std::size_t mig = 0; mig < devices.size(); ++mig) {
      if (devices[mig] && devices[mig]->uuid == uuid) return {Status::kSuccess, card, mig};
    }
  }
  return {Status::kNotFound, {}, {}};
}

Status give_handle(const Target& target, DeviceHandle* out) {
  return fake_nvml::give(
      fake_nvml::handle_of(target.card->uuid, target.mig == nullptr ? "" : target.mig->uuid), out);
}

}  // namespace

FAKE_NVML_EXPORT Status nvmlInit_v2() {
  return fake_nvml::init(Function::nvmlInit_v2);
}

// The only flag that could matter is "do not fail without GPUs", and the fake never fails for that.
FAKE_NVML_EXPORT Status nvmlInitWithFlags(unsigned /*flags*/) {
  return fake_nvml::init(Function::nvmlInitWithFlags);
}

FAKE_NVML_EXPORT Status nvmlShutdown() {
  return fake_nvml::shut_down();
}

FAKE_NVML_EXPORT const char* nvmlErrorString(Status status) {
  fake_nvml::note(Function::nvmlErrorString);
  return fake_nvml::status_sentence(status);
}

FAKE_NVML_EXPORT Status nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return on_system(Function::nvmlSystemGetDriverVersion, [&](const State& state) {
    return fake_nvml::give_text(state.driver, version, length);
  });
}

FAKE_NVML_EXPORT Status nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return on_system(Function::nvmlSystemGetNVMLVersion, [&](const State& state) {
    return fake_nvml::give_text(state.nvml, version, length);
  });
}

FAKE_NVML_EXPORT Status nvmlSystemGetCudaDriverVersion(int* version) {
  return on_system(Function::nvmlSystemGetCudaDriverVersion,
                   [&](const State& state) { return fake_nvml::give(state.cuda_driver, version); });
}

FAKE_NVML_EXPORT Status nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return on_system(Function::nvmlSystemGetCudaDriverVersion_v2,
                   [&](const State& state) { return fake_nvml::give(state.cuda_driver, version); });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetCount_v2(unsigned* count) {
  return on_system(Function::nvmlDeviceGetCount_v2,
                   [&](const State& state) { return fake_nvml::give(state.cards.size(), count); });
}

FAKE_NVML_EXPORT Status nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle* device) {
  Target target;
  const auto locate = [index](const State& state) { return find_index(state, index); };
  const Status status = fake_nvml::begin(Function::nvmlDeviceGetHandleByIndex_v2, locate, target);
  return status == Status::kSuccess ? give_handle(target, device) : status;
}

FAKE_NVML_EXPORT Status nvmlDeviceGetHandleByUUID(const char* uuid, DeviceHandle* device) {
  Target target;
  const auto locate = [uuid](const State& state) { return find_uuid(state, uuid); };
  const Status status = fake_nvml::begin(Function::nvmlDeviceGetHandleByUUID, locate, target);
  return status == Status::kSuccess ? give_handle(target, device) : status;
}

// Not NVML: how often this process called a function, or all that match "prefix*".
FAKE_NVML_EXPORT unsigned long fake_nvml_calls(const char* function) {
  return function == nullptr ? 0 : fake_nvml::calls_of(function);
}
