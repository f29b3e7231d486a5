// What is known of the GPUs of a machine at one moment: plain values, copied freely.
//
// Everything a driver may refuse to tell is an optional. Nothing here is ever a sentinel: an
// unknown temperature is empty, not 0 and not 2^64 - 1.
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

// used + reserved + free = total, always. `reserved` is what the driver keeps for itself; drivers
// before R510 do not tell it apart, then it is empty and contained in `used`.
// Not the same as what a framework holds: `used` counts contexts, caches and everybody's processes.
struct CardMemory {
  Bytes total, used, free;
  std::optional<Bytes> reserved;
};

enum class ProcessKind {
  compute,
  graphics,
  // The driver names a process that is not to be seen from here: another container, mostly.
  other_namespace,
};
[[nodiscard]] const char* to_string(ProcessKind kind);

struct GpuProcess {
  ProcessKind kind = ProcessKind::compute;
  // Empty where the number would be somebody else's in our namespace.
  std::optional<pid_t> pid;
  long long start_ticks = 0;  // with `pid` the identity of the process; 0 if it is not to be seen
  std::optional<std::string> user, command;
  std::optional<WallTime> started;
  std::optional<Bytes> used;  // on this card
  std::optional<Bytes> peak;  // most it ever used, where the driver keeps accounts
  // Highest share of the card's processors in the last seconds, percent; only where it was asked
  // for (CardSource::read_activity) and the driver tells.
  std::optional<int> activity;
};

// A part of a card that MIG made a device of its own.
struct MigSlice {
  Uuid parent;
  std::optional<int> gpu_instance, compute_instance;
};

enum class ComputeMode { shared, exclusive_thread, prohibited, exclusive_process };

struct Card {
  // Fixed while the machine runs.
  int index =
      0;  // the driver's own order (by PCI address), as nvidia-smi counts; a slice has its card's
  Uuid uuid;
  std::string name;
  std::string pci;  // "00000000:01:00.0"; empty on simulated cards
  bool simulated = false;
  bool mig_enabled = false;       // a card cut into slices: the slices are used, not the card
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
  // What the ledger of leases takes from it (headroom/lease/ledger.h); nothing as sampled.
  Bytes promised{0};    // free, but others have reserved it
  Bytes margin{0};      // never given to anybody
  bool closed = false;  // nobody is given anything of it now
  bool stuck = false;   // the driver has not come back from a call about this card
  std::string trouble;  // why something is unknown, in the driver's words ("GPU is lost")
};

// The age of what a decision would rest on; empty if there never was a sample.
[[nodiscard]] std::optional<Seconds> age(const Card& card, Clock::time_point now);

// No decision rests on data older than this.
inline constexpr Seconds kFreshFor{2.0};
[[nodiscard]] bool is_fresh(const Card& card, Clock::time_point now);

// What this process could be given on the card right now, or nothing if that is not known: what is
// free, without what others have reserved and without the margin. A card that takes no further
// process (compute mode, MIG parent) or is `closed` has 0. The one such figure: what is shown and
// what is decided by come from here.
[[nodiscard]] std::optional<Bytes> usable_now(const Card& card);

struct Machine {
  std::optional<std::string> driver;  // "580.65.06"
  std::optional<int> cuda_driver;     // 13000: the newest CUDA this driver runs
  std::string why_no_driver;          // one sentence, empty when there is one
  bool silent = false;                // the driver hangs: it has not even told its cards
  Clock::time_point asked{};          // since when somebody waits for the first data
  bool simulated = false;
  std::vector<Card> cards;  // slices follow their card
  std::vector<std::string> warnings;
};

// "GPU 3", "GPU 3 slice MIG-1f2e...": how messages name a card.
[[nodiscard]] std::string label(const Card& card);

}  // namespace headroom::gpu
