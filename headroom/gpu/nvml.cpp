#include "headroom/gpu/nvml.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "headroom/gpu/detail/nvml_library.h"

namespace headroom::gpu {
namespace {

using nvml::Answer;
using nvml::Device;
using nvml::Library;
using nvml::MemoryReading;
using nvml::ProcessReading;

Bytes bytes(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n)};
}

// Makes the row add up to the total despite the driver's rounding: `free` is what an allocation can
// get and `reserved` is the driver's own figure, so `used` absorbs the difference.
CardMemory memory_from(const MemoryReading& reading) {
  CardMemory memory{.total = bytes(reading.total),
                    .used = {},
                    .free = bytes(std::min(reading.free, reading.total)),
                    .reserved = {}};
  const Bytes taken = memory.total - memory.free;
  if (reading.reserved) memory.reserved = std::min(bytes(*reading.reserved), taken);
  memory.used = taken - memory.reserved.value_or(Bytes{0});
  return memory;
}

std::optional<ComputeMode> compute_mode_from(const Answer<unsigned int>& mode) {
  if (!mode || *mode > 3) return {};
  return static_cast<ComputeMode>(*mode);
}

// Some drivers report success with 4000000000 percent: an impossible value counts as unknown.
std::optional<int> up_to(unsigned int most, unsigned int value) {
  if (value > most) return {};
  return static_cast<int>(value);
}
constexpr unsigned int kMostPercent = 100, kMostCelsius = 250, kMostMilliwatts = 100'000'000;

// The highest load of a process; 0 if the driver sampled only other processes.
std::optional<int> highest_share(pid_t pid, const std::vector<nvml::ProcessUtilization>& samples) {
  int highest = 0;
  bool nonsense = false;
  for (const nvml::ProcessUtilization& sample : samples) {
    if (static_cast<pid_t>(sample.pid) != pid) continue;
    const auto share = up_to(kMostPercent, sample.sm);
    nonsense = nonsense || !share;
    highest = std::max(highest, share.value_or(0));
  }
  if (nonsense && highest == 0) return {};
  return highest;
}

class NvmlSource : public CardSource {
 public:
  explicit NvmlSource(ProcessTable processes)
      : process_table_(std::move(processes)),
        pids_are_ours_(process_table_.in_first_pid_namespace()) {}

  Machine open() override;
  void read_gauges(Card& card) override;
  void read_processes(Card& card) override;
  void read_activity(Card& card) override;

 private:
  [[nodiscard]] Answer<std::string> name_of(Device device) const {
    return library_->ask_text("nvmlDeviceGetName", nvml::kNameSize, device);
  }
  [[nodiscard]] Answer<std::string> uuid_of(Device device) const {
    return library_->ask_text("nvmlDeviceGetUUID", nvml::kUuidSize, device);
  }
  [[nodiscard]] Card read_fixed(unsigned int index, Device device);
  void add_slices(Machine& machine, Device device);
  void note(Card& card, nvml::Return code) const;
  [[nodiscard]] GpuProcess describe(const ProcessReading& reading, ProcessKind kind);
  [[nodiscard]] bool visible_from_here(pid_t pid) const;
  [[nodiscard]] std::optional<ProcessFacts> facts_of(const ProcessStat& process);

  ProcessTable process_table_;
  bool pids_are_ours_;
  std::optional<Library> library_;
  std::map<Uuid, Device> devices_;  // fixed after open()

  // Owner, command and start time never change: read once per process. Guarded, see source.h.
  std::mutex facts_guard_;
  std::map<ProcessIdentity, ProcessFacts> facts_;
};

Machine NvmlSource::open() {
  Machine machine;
  const std::string path = environment("HEADROOM_NVML").value_or("");
  auto loaded = Library::load(path.empty() ? "libnvidia-ml.so.1" : path);
  if (auto* why = std::get_if<std::string>(&loaded)) {
    machine.why_no_driver = *why;
    return machine;
  }
  library_ = std::get<Library>(loaded);
  machine.driver = library_->ask_text("nvmlSystemGetDriverVersion", nvml::kVersionSize).optional();
  machine.cuda_driver =
      library_->ask<int>({"nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"})
          .optional();
  const auto count = library_->ask<unsigned int>({"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  if (!count)
    machine.warnings.push_back("the driver does not report how many GPUs there are: " +
                               library_->describe(count.code()));
  for (unsigned int i = 0; count && i < *count; ++i) {
    const auto device =
        library_->ask<Device>({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, i);
    if (!device) {
      machine.warnings.push_back("GPU " + std::to_string(i) +
                                 " cannot be reached: " + library_->describe(device.code()));
      continue;
    }
    machine.cards.push_back(read_fixed(i, *device));
    if (machine.cards.back().mig_enabled) add_slices(machine, *device);
  }
  return machine;
}

Card NvmlSource::read_fixed(unsigned int index, Device device) {
  Card card;
  card.index = static_cast<int>(index);
  card.name = name_of(device).optional().value_or("unknown GPU");
  card.pci = library_->pci(device).optional().value_or("");
  // A card that does not report its UUID is identified by its index.
  card.uuid =
      Uuid::from_driver(uuid_of(device).optional().value_or("GPU-" + std::to_string(index)));
  if (const auto capability = library_->capability(device))
    card.capability = {capability->first, capability->second};
  card.mig_enabled = library_->mig_enabled(device);
  devices_[card.uuid] = device;
  return card;
}

void NvmlSource::add_slices(Machine& machine, Device device) {
  const Card parent = machine.cards.back();
  for (Device slice_device : library_->mig_devices(device)) {
    Card slice = parent;
    const auto uuid = uuid_of(slice_device);
    if (!uuid) continue;
    slice.uuid = Uuid::from_driver(*uuid);
    slice.mig_enabled = false;
    // "NVIDIA A100-SXM4-40GB MIG 1g.5gb", if the driver reports it.
    slice.name = name_of(slice_device).optional().value_or(parent.name + " MIG");
    const auto number = [&](const char* function) -> std::optional<int> {
      const auto answer = library_->ask<unsigned int>({function}, slice_device);
      if (!answer) return {};
      return static_cast<int>(*answer);
    };
    slice.slice = MigSlice{parent.uuid, number("nvmlDeviceGetGpuInstanceId"),
                           number("nvmlDeviceGetComputeInstanceId")};
    devices_[slice.uuid] = slice_device;
    machine.cards.push_back(std::move(slice));
  }
}

// Records the first failure. A missing sensor (no power meter, no utilisation on slices) is not a
// failure, nor is a refusal to list the processes of a whole MIG card to users other than root.
void NvmlSource::note(Card& card, nvml::Return code) const {
  const bool ordinary = code == nvml::kNotSupported || code == nvml::kFunctionNotFound ||
                        code == nvml::kSuccess || code == nvml::kNotFound ||
                        code == nvml::kNoPermission;
  if (!ordinary && card.trouble.empty()) card.trouble = library_->describe(code);
}

void NvmlSource::read_gauges(Card& card) {
  const Device device = devices_.at(card.uuid);
  card.trouble.clear();
  const auto memory = library_->memory(device);
  note(card, memory.code());
  card.memory.reset();
  if (memory) card.memory = memory_from(*memory);

  const auto utilization =
      library_->ask<nvml::Utilization>({"nvmlDeviceGetUtilizationRates"}, device);
  note(card, utilization.code());
  card.utilization.reset();
  card.memory_utilization.reset();
  if (utilization) {
    card.utilization = up_to(kMostPercent, utilization->gpu);
    card.memory_utilization = up_to(kMostPercent, utilization->memory);
  }
  const auto number = [&](const char* function, auto... before) {
    return library_->ask<unsigned int>({function}, device, before...);
  };
  const auto temperature = number("nvmlDeviceGetTemperature", nvml::kTemperatureOfGpu);
  card.temperature_c.reset();
  if (temperature) card.temperature_c = up_to(kMostCelsius, *temperature);
  const auto power = number("nvmlDeviceGetPowerUsage");
  card.power_w.reset();
  if (power && *power <= kMostMilliwatts) card.power_w = *power / 1000.0;
  const auto persistence = number("nvmlDeviceGetPersistenceMode");
  card.persistence.reset();
  if (persistence) card.persistence = *persistence == 1;
  card.compute_mode = compute_mode_from(number("nvmlDeviceGetComputeMode"));
}

void NvmlSource::read_processes(Card& card) {
  const Device device = devices_.at(card.uuid);
  const auto compute = library_->compute_processes(device);
  const auto graphics = library_->graphics_processes(device);
  note(card, compute.code());
  note(card, graphics.code());
  card.processes.reset();
  // The compute list is required; the graphics list alone would not show which processes compute.
  if (!compute) return;

  const auto accounting = library_->ask<unsigned int>({"nvmlDeviceGetAccountingMode"}, device);
  const bool accounts = accounting && *accounting == 1;
  std::vector<GpuProcess> processes;
  std::set<unsigned int> listed;  // driver's numbers, invisible processes included
  const auto add = [&](const Answer<std::vector<ProcessReading>>& readings, ProcessKind kind) {
    if (!readings) return;
    for (const ProcessReading& reading : *readings) {
      // A process that computes and draws is in both lists, with the same bytes.
      if (!listed.insert(reading.pid).second) continue;
      processes.push_back(describe(reading, kind));
      GpuProcess& added = processes.back();
      if (!accounts || !added.pid) continue;
      if (const auto peak = library_->peak_memory(device, reading.pid)) added.peak = bytes(*peak);
    }
  };
  add(compute, ProcessKind::compute);
  add(graphics, ProcessKind::graphics);
  card.processes = std::move(processes);
}

void NvmlSource::read_activity(Card& card) {
  const auto samples = library_->process_utilization(devices_.at(card.uuid));
  if (!samples || !card.processes) return;
  for (GpuProcess& process : *card.processes)
    if (process.pid) process.activity = highest_share(*process.pid, *samples);
}

GpuProcess NvmlSource::describe(const ProcessReading& reading, ProcessKind kind) {
  GpuProcess process;
  process.kind = kind;
  if (reading.used) process.used = bytes(*reading.used);
  const auto pid = static_cast<pid_t>(reading.pid);
  const auto stat = process_table_.stat(pid);
  const auto facts = stat && visible_from_here(pid) ? facts_of(*stat) : std::nullopt;
  if (!facts) {
    process.kind = ProcessKind::other_namespace;
    return process;
  }
  process.pid = pid;
  process.start_ticks = stat->identity.start_ticks;
  process.user = facts->user;
  process.command = facts->command;
  process.started = facts->started;
  return process;
}

// In a container the driver's process numbers are the host's: a process of ours with the same
// number counts only if it has a file of the driver open.
bool NvmlSource::visible_from_here(pid_t pid) const {
  return pids_are_ours_ || process_table_.holds_open(pid, "/dev/nvidia").value_or(false);
}

std::optional<ProcessFacts> NvmlSource::facts_of(const ProcessStat& process) {
  {
    const std::lock_guard lock(facts_guard_);
    if (const auto known = facts_.find(process.identity); known != facts_.end())
      return known->second;
  }
  auto facts = process_table_.facts(process);
  // A process that is starting has no command line yet: it shows as "[name]" until the next sample.
  if (!facts || facts->command.starts_with('[')) return facts;
  const std::lock_guard lock(facts_guard_);
  // Limits the cache: logging may run for months on a busy machine.
  if (facts_.size() > 4096) facts_.clear();
  facts_[process.identity] = *facts;
  return facts;
}

}  // namespace

std::unique_ptr<CardSource> make_nvml_source(ProcessTable processes) {
  return std::make_unique<NvmlSource>(std::move(processes));
}

}  // namespace headroom::gpu
