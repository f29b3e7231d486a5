// Explains who holds memory on a card, why they still hold it, and what the user can do.
//
// This code ends no process. The rule for ending one: the user named it and owns it, it shows no
// GPU activity and no CPU progress while watched, and its parent job is not alive.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/machine.h"

namespace headroom::gpu {

enum class HolderClass {
  running,          // a process of this user at work
  orphan,           // its launcher is gone: a loader or rank left behind
  zombie,           // ended but not reaped by its parent, and its memory is still held
  stopped,          // suspended (Ctrl-Z, a debugger): holds its memory, does nothing
  other_user,       // owned by another user
  other_namespace,  // in another container
  mps_server,       // the server of CUDA MPS; its clients' memory is counted on it
  display,          // X, a compositor, a browser
  not_listed,       // has the driver open, but the driver does not list it
  unattributed,     // memory in use that no listed process accounts for
};
[[nodiscard]] const char* to_string(HolderClass holder_class);  // "other-namespace"

struct HolderReport {
  Uuid card;
  int card_index = 0;
  HolderClass holder_class = HolderClass::running;
  std::optional<ProcessIdentity> process;
  std::optional<std::string> user, command;
  std::optional<Bytes> used;
  std::optional<Seconds> age;  // since the process started
  std::string why;             // one sentence: why it still holds the memory
  std::string action;          // one sentence of advice for the user
};

// Memory in use on the card beyond its listed processes. std::nullopt if the driver does not report
// it, on a card with MIG slices (the slices report it), and for less than the driver's own
// bookkeeping.
[[nodiscard]] std::optional<Bytes> unlisted_memory(const Card& card);

// Every holder of every card, in the order of the cards, largest first. `search_harder` also finds
// processes of this user that have the driver open without being listed.
[[nodiscard]] std::vector<HolderReport> explain_holders(const Machine& machine,
                                                        const ProcessTable& processes,
                                                        bool search_harder);

// A reason not to end a process, or std::nullopt if it may be ended. `earlier` is the same process
// kWatched before: CPU time used since then counts as progress.
inline constexpr Seconds kWatched{10.0};
[[nodiscard]] std::optional<std::string> reason_to_spare(const Machine& machine,
                                                         const ProcessTable& processes,
                                                         const ProcessStat& earlier);

}  // namespace headroom::gpu
