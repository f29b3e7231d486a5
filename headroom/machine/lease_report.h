// Leases, waiting jobs and their needs, as `queue`, `who` and `lease list` show them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/lease/ledger.h"
#include "headroom/machine/look.h"

namespace headroom::machine {

// One card's share of a lease. An empty field is unknown: it was not looked up, or the process is
// invisible from here.
struct LeaseRow {
  lease::Claim claim;
  gpu::Uuid card;
  std::optional<int> card_index;
  Bytes reserved;
  std::optional<Bytes> used;
  std::optional<pid_t> pid;                   // the process that requested it
  std::optional<std::vector<pid_t>> holding;  // the visible processes that hold it now
};

struct WaitingRow {
  lease::Waiter waiter;
  std::optional<pid_t> pid;     // std::nullopt if invisible from here
  std::optional<int> position;  // std::nullopt if the waiter is stopped: others pass it
  std::string why;
};

struct LeaseReport {
  Look look;
  std::vector<LeaseRow> leases;
  std::vector<WaitingRow> waiting;
  std::vector<std::string> warnings;
};

// `with_holders` inspects every process of the machine.
[[nodiscard]] LeaseReport report_leases(const std::string& gpus, bool with_holders);
// The rows of `waiting` alone, for a look that was taken already.
[[nodiscard]] std::vector<WaitingRow> waiting_rows(const Look& look);

// The JSON document of all three commands.
[[nodiscard]] Json document(const LeaseReport& report);

}  // namespace headroom::machine
