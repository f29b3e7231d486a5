// The simulated machine as one immutable value, and how it is read from JSON. README.md describes
// the format; state_file.h watches the file.
//
// A State never changes after parse_state() returned it, so calls on several threads share one
// through a pointer and need no lock while they read.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "nvml_abi.h"

namespace fake_nvml {

using FunctionSet = std::bitset<kFunctionCount>;

/// Bytes. As in NVML's second version, `used` is without `reserved`.
struct Memory {
  std::uint64_t total = 0, reserved = 0, used = 0, free = 0;
};

struct Process {
  unsigned pid = 0;
  std::optional<std::uint64_t> used;  // nothing: the driver cannot tell
  bool compute = false, graphics = false, mps = false;
  std::optional<unsigned> sm;  // nothing: no utilisation sample for this process
  unsigned memory_utilization = 0;
  std::optional<std::uint64_t> timestamp_us;  // nothing: sampled at the moment of the call
};

struct MigDevice {
  std::string uuid, name;
  unsigned gpu_instance = 0, compute_instance = 0;
  Memory memory;
  std::vector<Process> processes;
};

/// Exists only for cards that know MIG at all.
struct Mig {
  bool mode = false, pending = false;
  unsigned max_devices = 7;
  std::vector<std::optional<MigDevice>> devices;  // nothing: a free index between others
};

struct AccountedProcess {
  unsigned pid = 0;
  AccountingStats stats{};
};

struct Accounting {
  bool mode = false;
  std::vector<AccountedProcess> processes;
};

struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0, device_id = 0;
};

/// An optional measurement that is absent makes its getter answer NOT_SUPPORTED.
struct Card {
  std::string name, uuid;
  PciAddress pci;
  std::optional<Memory> memory;
  std::optional<unsigned> utilization, temperature, power_mw, power_limit_mw;
  std::optional<unsigned> compute_mode, pcie_generation, pcie_width;
  std::optional<bool> persistence;
  unsigned memory_utilization = 0;
  int capability_major = 8, capability_minor = 9;
  std::vector<Process> processes;
  std::optional<Mig> mig;
  std::optional<Accounting> accounting;
  FunctionSet unsupported;

  [[nodiscard]] bool mig_on() const { return mig && mig->mode; }
};

struct Fault {
  std::string identity;  // the same text in two state files is the same fault
  FunctionSet functions;
  std::optional<unsigned> card;
  std::uint64_t after = 0;
  std::optional<std::uint64_t> times;
  bool hang = false;
  std::optional<double> hang_s;  // nothing: for as long as the fault stands in the file
  Status status = Status::kSuccess;
};

struct State {
  std::string driver, nvml;
  int cuda_driver = 0;
  Status init = Status::kSuccess;
  std::vector<Card> cards;
  std::vector<Fault> faults;
};

/// Not even JSON: most likely a file that is still being written.
class IncompleteState : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// JSON that says something this format does not know: a mistake in a test.
class BadState : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Reads a whole state file. Throws IncompleteState or BadState.
[[nodiscard]] State parse_state(const std::string& text);

/// The functions a pattern of a state file means: one name, or a prefix that ends in '*'.
/// Throws BadState when it means none.
[[nodiscard]] FunctionSet functions_matching(const std::string& pattern);

}  // namespace fake_nvml
