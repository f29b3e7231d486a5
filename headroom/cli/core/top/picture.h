// The machine at one moment as `headroom top` shows it, in plain values. The drawing (draw.h) and
// the keys (controls.h) need nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/cli/core/lease_view.h"
#include "headroom/cli/core/top/history.h"
#include "headroom/machine/look.h"
#include "headroom/watch/job_status.h"

namespace headroom::cli {

// A process on a card; one that uses several cards has a row for each.
struct ProcessRow {
  int card = 0;
  gpu::Uuid uuid = {};
  // Empty for a process of another PID namespace, and for memory that no listed process owns.
  std::optional<ProcessIdentity> process = {};
  std::string user = "?", command = "?";
  std::optional<Bytes> used = {};
  std::optional<WallTime> started = {};
  std::string lease = {};                    // its identifier, or "" if there is none
  std::optional<watch::JobStatus> job = {};  // of a training of Headroom
};

struct Picture {
  gpu::Machine machine;  // `withheld` from the leases
  std::vector<ProcessRow> processes;
  std::vector<machine::WaitingRow> waiting;
  std::vector<std::string> warnings;
  std::string advice;  // the one thing worth doing, or ""
  History history;
  Clock::time_point taken{};
  WallTime wall{};  // the same on the wall clock
  Seconds interval{1.0};
};

// `history` and `interval` are left to the caller.
[[nodiscard]] Picture picture_of(machine::Look look, const std::vector<watch::JobStatus>& jobs,
                                 const ProcessTable& processes = ProcessTable());

// Too old to be shown as present: a sample that should have been replaced by now.
[[nodiscard]] bool is_stale(const gpu::Card& card, const Picture& picture, Clock::time_point now);

}  // namespace headroom::cli
