// Who holds memory on a card, why it is still held, and what may be done about it.
//
// This explains; it ends nothing by itself. The rule for ending a process: only one that the user
// named, that is his own, that shows no GPU activity and no CPU progress over the time it was
// watched, and whose parent job is not alive.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/card.h"

namespace headroom::gpu {

enum class HolderClass {
  running,          // a process of this user at work
  orphan,           // its launcher is gone: a loader or rank left behind
  zombie,           // ended, but its parent has not collected it, and something keeps its memory
  stopped,          // suspended (Ctrl-Z, a debugger): holds everything, does nothing
  other_user,       // somebody else's
  other_namespace,  // in another container
  mps_server,       // the server of CUDA MPS; its clients' memory is counted on it
  display,          // X, a compositor, a browser
  not_listed,       // has the driver open, but the driver does not list it
  unattributed,     // bytes in use that no process accounts for
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
  std::string action;          // one sentence: what to do
};

// In use on the card beyond what its listed processes own. Nothing where the driver does not tell,
// on a card that is cut into slices (they tell it), and for less than the driver's own bookkeeping.
[[nodiscard]] std::optional<Bytes> unlisted_memory(const Card& card);

// Every holder of every card, in the order of the cards, biggest first. `search_harder` also finds
// processes of this user that have the driver open without being listed.
[[nodiscard]] std::vector<HolderReport> explain_holders(const Machine& machine,
                                                        const ProcessTable& processes,
                                                        bool search_harder);

// A reason not to end a process, or nothing if it may be ended. `earlier` is the same process some
// seconds before (see kWatched): CPU time used since then is progress.
inline constexpr Seconds kWatched{10.0};
[[nodiscard]] std::optional<std::string> reason_to_spare(const Machine& machine,
                                                         const ProcessTable& processes,
                                                         const ProcessStat& earlier);

}  // namespace headroom::gpu
