// Facts about a machine's GPUs at one moment, as plain values that copy freely.
//
// Each fact that a driver may refuse to report is an optional. There are no sentinels: an unknown
// temperature is empty, not 0 and not 2^64 - 1.
//
//   Machine machine = sampler.fresh();
//   for (const Card& card : machine.cards)
//     if (card.memory) say(card.name, card.memory->free);
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/time.h"
#include "headroom/gpu/uuid.h"

namespace headroom::gpu {

// used + reserved + free = total, always. `reserved` is the driver's own memory; drivers before
// R510 do not report it separately: then it is empty, and `used` contains it. `used` is more than a
// framework's own figure: it counts contexts, caches and the processes of all users.
struct CardMemory {
  Bytes total, used, free;
  std::optional<Bytes> reserved;
};

enum class ProcessKind {
  compute,
  graphics,
  // The driver lists a process that is invisible from here, mostly one in another container.
  other_namespace,
};
[[nodiscard]] const char* to_string(ProcessKind kind);

struct GpuProcess {
  ProcessKind kind = ProcessKind::compute;
  // std::nullopt if the number would belong to another process in our PID namespace.
  std::optional<pid_t> pid;
  long long start_ticks = 0;  // with `pid` the identity of the process; 0 if it is invisible
  std::optional<std::string> user, command;
  std::optional<WallTime> started;
  std::optional<Bytes> used;  // on this card
  std::optional<Bytes> peak;  // its maximum so far, if the driver's accounting is on
  // Highest share of the card's multiprocessors in the last seconds, in percent; only set by
  // CardSource::read_activity, and only if the driver reports it.
  std::optional<int> activity;
};

// A MIG slice: a part of a card that acts as a device of its own.
struct MigSlice {
  Uuid parent;
  std::optional<int> gpu_instance, compute_instance;
};

enum class ComputeMode { shared, exclusive_thread, prohibited, exclusive_process };

// Memory of a card that no new process is given, although the driver reports it as free. A sample
// withholds nothing: whatever divides the cards among jobs sets this.
struct Withheld {
  Bytes now{0};             // at this moment
  Bytes always{0};          // however empty the card is
  bool everything = false;  // no new process at all
};

struct Card {
  // Fixed while the machine runs.
  int index = 0;  // driver order (by PCI address), as in nvidia-smi; a slice has its card's
  Uuid uuid;
  std::string name;
  std::string pci;  // "00000000:01:00.0"; empty on simulated cards
  bool simulated = false;
  bool mig_enabled = false;       // the card is cut into slices: use the slices, not the card
  std::optional<MigSlice> slice;  // set on the slices
  std::optional<std::array<int, 2>> capability;  // compute capability, {8, 9}

  // From the last sample.
  std::optional<CardMemory> memory;
  std::optional<int> utilization, memory_utilization;  // percent of the last sampling window
  std::optional<int> temperature_c;
  std::optional<double> power_w;
  std::optional<bool> persistence;
  std::optional<ComputeMode> compute_mode;
  std::optional<std::vector<GpuProcess>> processes;

  std::optional<Clock::time_point> sampled;            // when `memory` was read
  std::optional<Clock::time_point> processes_sampled;  // when `processes` was read
  Withheld withheld;
  bool stuck = false;   // a driver call about this card has not returned
  std::string trouble;  // why a figure is unknown, in the driver's words ("GPU is lost")
};

// The age of the data; empty before the first sample.
[[nodiscard]] std::optional<Seconds> age(const Card& card, Clock::time_point now);

// Decisions use no data older than this.
inline constexpr Seconds kFreshFor{2.0};
[[nodiscard]] bool is_fresh(const Card& card, Clock::time_point now);

// The usable memory: what a new process could be given on the card now, or std::nullopt if that is
// unknown. It is the free memory minus the withheld memory; 0 on a card that takes no further
// process (compute mode, MIG parent). Every display and every decision uses this figure.
[[nodiscard]] std::optional<Bytes> usable_now(const Card& card);

struct Machine {
  std::optional<std::string> driver;  // "580.65.06"
  std::optional<int> cuda_driver;     // 13000: the newest CUDA this driver runs
  std::string why_no_driver;          // one sentence, or "" if there is a driver
  bool silent = false;                // the driver hangs: it has not even listed its cards
  Clock::time_point asked{};          // start of the wait for the first data
  bool simulated = false;
  std::vector<Card> cards;  // slices follow their card
  std::vector<std::string> warnings;
};

// "GPU 3", "GPU 3 slice MIG-1f2e...": the card's name in messages.
[[nodiscard]] std::string label(const Card& card);

// The memory of the smallest card; std::nullopt if no card reports it.
[[nodiscard]] std::optional<Bytes> smallest_total(const Machine& machine);

// "13.0", from the driver's 13000.
[[nodiscard]] std::string cuda_version(int driver);

}  // namespace headroom::gpu
