// From the JSON of a state file to a State, with defaults for everything a test leaves out.
#include "state.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "json_fields.h"
#include "status.h"

namespace fake_nvml {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kGiB = 1ull << 30;
constexpr std::uint64_t kAnyCount = std::numeric_limits<std::uint64_t>::max();

// 2684 is the GeForce RTX 4090 of the default name, 10de NVIDIA.
constexpr unsigned kDefaultPciDevice = 0x268410de;

std::string numbered_uuid(const char* prefix, std::size_t high, std::size_t low) {
  char text[64];
  std::snprintf(text, sizeof text, "%s00000000-0000-0000-%04zx-%012zx", prefix, high, low);
  return text;
}

Memory read_memory(const Fields& fields, std::uint64_t total, std::uint64_t used_by_default) {
  Memory memory;
  memory.total = total;
  memory.reserved = fields.bytes("reserved", 0).value_or(0);
  memory.used = fields.bytes("used", used_by_default).value_or(0);
  const std::uint64_t taken = memory.reserved + memory.used;
  memory.free = fields.bytes("free", total > taken ? total - taken : 0).value_or(0);
  return memory;
}

std::uint64_t memory_of(const std::vector<Process>& processes) {
  return std::accumulate(
      processes.begin(), processes.end(), std::uint64_t{0},
      [](std::uint64_t sum, const Process& process) { return sum + process.used.value_or(0); });
}

// "compute", "graphics", "mps", or several joined with '+': the real lists can overlap.
void read_kind(const Fields& fields, Process& process) {
  std::string rest = fields.text("kind", "compute") + "+";
  while (!rest.empty()) {
    const std::string kind = rest.substr(0, rest.find('+'));
    rest.erase(0, kind.size() + 1);
    if (kind == "compute") {
      process.compute = true;
    } else if (kind == "graphics") {
      process.graphics = true;
    } else if (kind == "mps") {
      process.mps = true;
    } else {
      fields.refuse("kind", "compute, graphics or mps, joined with '+'");
    }
  }
}

Process read_process(const Json& json, const std::string& where) {
  const Fields fields(json, where,
                      {"pid", "used", "kind", "sm", "memory_utilization", "timestamp_us"});
  Process process;
  if (fields.find("pid") == nullptr) fields.refuse("pid", "a process id");
  process.pid = fields.number32("pid", 0);
  process.used = fields.bytes("used", 0);
  read_kind(fields, process);
  process.sm = fields.measurement("sm", std::nullopt);
  process.memory_utilization = fields.number32("memory_utilization", 0);
  if (fields.find("timestamp_us") != nullptr) {
    process.timestamp_us = fields.number("timestamp_us", 0, kAnyCount);
  }
  return process;
}

std::vector<Process> read_processes(const Fields& fields) {
  std::vector<Process> processes;
  for (const Json& json : fields.list("processes")) {
    processes.push_back(read_process(json, fields.place("processes", processes.size())));
  }
  return processes;
}

// "1g.5gb" has five GiB, "1g.12gb+me" twelve.
std::uint64_t memory_of_profile(const std::string& profile) {
  const std::size_t dot = profile.find('.');
  const unsigned long gib =
      dot == std::string::npos ? 0 : std::strtoul(profile.c_str() + dot + 1, nullptr, 10);
  return (gib == 0 ? 5 : gib) * kGiB;
}

MigDevice read_mig_device(const Json& json, const std::string& where, const std::string& card_name,
                          std::size_t card, std::size_t index) {
  const Fields fields(
      json, where,
      {"uuid", "name", "gi", "ci", "profile", "total", "used", "reserved", "free", "processes"});
  MigDevice device;
  const std::string profile = fields.text("profile", "1g.5gb");
  device.uuid = fields.text("uuid", numbered_uuid("MIG-", card, index));
  device.name = fields.text("name", card_name + " MIG " + profile);
  // GPU instances are numbered from 7 on for the smallest profile of an A100.
  device.gpu_instance = fields.number32("gi", static_cast<unsigned>(7 + index));
  device.compute_instance = fields.number32("ci", 0);
  device.processes = read_processes(fields);
  const std::uint64_t total = fields.bytes("total", memory_of_profile(profile)).value_or(0);
  device.memory = read_memory(fields, total, memory_of(device.processes));
  return device;
}

Mig read_mig(const Json& json, const std::string& where, const std::string& card_name,
             std::size_t card) {
  const Fields fields(json, where, {"mode", "pending", "max", "devices"});
  Mig mig;
  mig.mode = fields.flag("mode", true);
  mig.pending = fields.flag("pending", mig.mode);
  for (const Json& device : fields.list("devices")) {
    const std::size_t index = mig.devices.size();
    mig.devices.emplace_back();
    if (device.is_null()) continue;
    mig.devices.back() =
        read_mig_device(device, fields.place("devices", index), card_name, card, index);
  }
  const unsigned most = std::max(7u, static_cast<unsigned>(mig.devices.size()));
  mig.max_devices = fields.number32("max", most);
  return mig;
}

AccountedProcess read_accounted(const Json& json, const std::string& where) {
  const Fields fields(json, where,
                      {"pid", "max_memory", "start_time_us", "time_ms", "is_running",
                       "gpu_utilization", "memory_utilization"});
  AccountedProcess process;
  if (fields.find("pid") == nullptr) fields.refuse("pid", "a process id");
  process.pid = fields.number32("pid", 0);
  AccountingStats& stats = process.stats;
  stats.gpu_utilization = fields.measurement("gpu_utilization", 0).value_or(kNotAvailable32);
  stats.memory_utilization = fields.measurement("memory_utilization", 0).value_or(kNotAvailable32);
  stats.max_memory_bytes = fields.bytes("max_memory", 0).value_or(kNotAvailable64);
  stats.start_time_us = fields.number("start_time_us", 0, kAnyCount);
  stats.time_ms = fields.number("time_ms", 0, kAnyCount);
  stats.is_running = fields.flag("is_running", false) ? 1 : 0;
  return process;
}

Accounting read_accounting(const Json& json, const std::string& where) {
  const Fields fields(json, where, {"mode", "pids"});
  Accounting accounting;
  accounting.mode = fields.flag("mode", true);
  for (const Json& pid : fields.list("pids")) {
    accounting.processes.push_back(
        read_accounted(pid, fields.place("pids", accounting.processes.size())));
  }
  return accounting;
}

PciAddress read_pci(const Fields& fields, std::size_t index) {
  PciAddress pci;
  pci.bus = static_cast<unsigned>(index + 1);
  pci.device_id = fields.number32("pci_device_id", kDefaultPciDevice);
  if (fields.find("pci") == nullptr) return pci;
  const std::string text = fields.text("pci", "");
  unsigned function = 0;
  int length = 0;
  const int read = std::sscanf(text.c_str(), "%x:%x:%x.%x%n", &pci.domain, &pci.bus, &pci.device,
                               &function, &length);
  if (read != 4 || static_cast<std::size_t>(length) != text.size()) {
    fields.refuse("pci", "an address such as \"00000000:01:00.0\"");
  }
  return pci;
}

void read_capability(const Fields& fields, Card& card) {
  const Json& list = fields.list("capability");
  if (list.empty()) return;
  if (list.size() != 2 || !list[0].is_number_unsigned() || !list[1].is_number_unsigned()) {
    fields.refuse("capability", "two numbers such as [8, 9]");
  }
  card.capability_major = list[0].get<int>();
  card.capability_minor = list[1].get<int>();
}

std::uint64_t memory_of(const Mig& mig) {
  std::uint64_t sum = 0;
  for (const auto& device : mig.devices) sum += device ? device->memory.used : 0;
  return sum;
}

void read_measurements(const Fields& fields, Card& card) {
  card.utilization = fields.measurement("utilization", 0);
  card.memory_utilization = fields.number32("memory_utilization", 0);
  card.temperature = fields.measurement("temperature", 40);
  card.power_mw = fields.measurement("power_mw", 30000);
  card.power_limit_mw = fields.measurement("power_limit_mw", 450000);
  card.compute_mode = fields.measurement("compute_mode", 0);
  card.pcie_generation = fields.measurement("pcie_generation", 4);
  card.pcie_width = fields.measurement("pcie_width", 16);
  const Json* persistence = fields.find("persistence");
  if (persistence == nullptr || !persistence->is_null()) {
    card.persistence = fields.flag("persistence", true);
  }
}

Card read_card(const Json& json, std::size_t index) {
  const Fields fields(json, "cards[" + std::to_string(index) + "]",
                      {"name",
                       "uuid",
                       "pci",
                       "pci_device_id",
                       "total",
                       "reserved",
                       "used",
                       "free",
                       "utilization",
                       "memory_utilization",
                       "temperature",
                       "power_mw",
                       "power_limit_mw",
                       "persistence",
                       "compute_mode",
                       "capability",
                       "pcie_generation",
                       "pcie_width",
                       "processes",
                       "mig",
                       "accounting",
                       "unsupported"});
  Card card;
  card.name = fields.text("name", "NVIDIA GeForce RTX 4090");
  card.uuid = fields.text("uuid", numbered_uuid("GPU-", 0, index));
  card.pci = read_pci(fields, index);
  card.processes = read_processes(fields);
  if (const Json* mig = fields.find("mig")) {
    card.mig = read_mig(*mig, fields.place("mig"), card.name, index);
  }
  const std::uint64_t used = memory_of(card.processes) + (card.mig_on() ? memory_of(*card.mig) : 0);
  if (const auto total = fields.bytes("total", 24 * kGiB)) {
    card.memory = read_memory(fields, *total, used);
  }
  read_measurements(fields, card);
  read_capability(fields, card);
  if (const Json* accounting = fields.find("accounting")) {
    card.accounting = read_accounting(*accounting, fields.place("accounting"));
  }
  for (const Json& pattern : fields.list("unsupported")) {
    if (!pattern.is_string()) fields.refuse("unsupported", "names of functions");
    card.unsupported |= functions_matching(pattern.get<std::string>());
  }
  return card;
}

void read_effect(const Fields& fields, Fault& fault) {
  const std::string effect = fields.text("do", "");
  if (effect == "hang") {
    fault.hang = true;
  } else if (effect.starts_with("hang:")) {
    const char* seconds = effect.c_str() + 5;
    char* end = nullptr;
    fault.hang = true;
    fault.hang_s = std::strtod(seconds, &end);
    if (end == seconds || *end != '\0' || !(*fault.hang_s >= 0 && *fault.hang_s <= 1e6)) {
      fields.refuse("do", "seconds after \"hang:\", at most a million");
    }
  } else if (const auto status = status_from_name(effect); status && *status != Status::kSuccess) {
    fault.status = *status;
  } else {
    fields.refuse("do", "\"hang\", \"hang:2.5\" or an NVML return name such as \"GPU_IS_LOST\"");
  }
}

Fault read_fault(const Json& json, const std::string& where) {
  const Fields fields(json, where, {"function", "card", "after", "times", "do"});
  Fault fault;
  fault.functions = functions_matching(fields.text("function", ""));
  fault.card = fields.measurement("card", std::nullopt);
  fault.after = fields.number("after", 0, kAnyCount);
  if (fields.find("times") != nullptr) fault.times = fields.number("times", 0, kAnyCount);
  read_effect(fields, fault);
  return fault;
}

// Two equal faults in one file are told apart by their order, so that each counts its own calls.
std::vector<Fault> read_faults(const Fields& fields) {
  std::vector<Fault> faults;
  std::map<std::string, int> seen;
  for (const Json& json : fields.list("faults")) {
    faults.push_back(read_fault(json, fields.place("faults", faults.size())));
    const std::string text = json.dump();
    faults.back().identity = text + "#" + std::to_string(seen[text]++);
  }
  return faults;
}

State read_state(const Json& json) {
  const Fields fields(json, "", {"driver", "nvml", "cuda_driver", "init", "cards", "faults"});
  State state;
  state.driver = fields.text("driver", "580.65.06");
  state.cuda_driver = static_cast<int>(fields.number32("cuda_driver", 13000));
  // The real library names its own version after CUDA's and the driver's: 12.550.54.15.
  state.nvml = fields.text("nvml", std::to_string(state.cuda_driver / 1000) + "." + state.driver);
  const std::optional<Status> init = status_from_name(fields.text("init", "OK"));
  if (!init) fields.refuse("init", "\"OK\" or an NVML return name");
  state.init = *init;
  for (const Json& card : fields.list("cards")) {
    state.cards.push_back(read_card(card, state.cards.size()));
  }
  state.faults = read_faults(fields);
  return state;
}

}  // namespace

FunctionSet functions_matching(const std::string& pattern) {
  const bool is_prefix = !pattern.empty() && pattern.back() == '*';
  const std::string stem = is_prefix ? pattern.substr(0, pattern.size() - 1) : pattern;
  FunctionSet functions;
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    const std::string name = kFunctionNames[i];
    if (is_prefix ? name.starts_with(stem) : name == stem) functions.set(i);
  }
  if (functions.none()) throw BadState("\"" + pattern + "\" names no function of the fake NVML");
  return functions;
}

State parse_state(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    throw IncompleteState(error.what());
  }
  try {
    return read_state(json);
  } catch (const Json::exception& error) {
    throw BadState(error.what());
  }
}

}  // namespace fake_nvml
